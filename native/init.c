/* tiltyard-init: pid 1 of a sandbox, its supervisor.
 *
 * Theory of operation. The launcher has built the sandbox and its child goes on here, with the control
 * socket; the host holds the other end. One thread, one poll loop: requests come in, results go out,
 * children are reaped, deadlines are kept. It is crash-only: when the control socket ends, for whatever
 * reason, it exits, and the kernel kills everything else in its pid namespace and drops its mounts. So
 * nothing outlives its owner, even if nobody cleans up.
 *
 * It is a part of the launcher's own program, because executing another one would cost a fifth of what
 * a sandbox costs (docs/decisions/0013). It needs nothing of the image. It never decides what an end
 * meant: see exec.c.
 */
#include "init.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "exec.h"
#include "files.h"
#include "frames.h"
#include "groups.h"
#include "landlock.h"
#include "restrict.h"
#include "start.h"

#define LISTEN_BELOW_BYTES (2u << 20) /* stop reading programs while the host is this far behind */

static int control;
static struct outbox outbox;

static void fail(const char *call) {
  struct body body = {.length = 0};
  put_u32(&body, (uint32_t)errno);
  put_text(&body, call);
  outbox_frame(&outbox, FRAME_ERROR, 0, 0, body.bytes, body.length);
  outbox_flush(&outbox, control);
  _exit(1);
}

static void signal_all(const struct frame *frame, int signal_number) {
  kill(-1, signal_number); /* there may be none */
  exec_pause(signal_number == SIGSTOP);
  outbox_frame(&outbox, FRAME_DONE, 0, frame->id, NULL, 0);
}

/* False when the host broke the protocol: there is nobody sane to talk to. */
static bool answer(const struct frame *frame) {
  switch (frame->type) {
    case FRAME_SPAWN: exec_spawn(&outbox, frame); return true;
    case FRAME_FORK: exec_fork(&outbox, frame); return true;
    case FRAME_INPUT: exec_input(&outbox, frame); return true;
    case FRAME_CLOSE_INPUT: exec_close_input(&outbox, frame); return true;
    case FRAME_KILL: exec_kill(frame->id); return true;
    case FRAME_SIGNAL: exec_signal(frame); return true;
    case FRAME_RESIZE: exec_resize(frame); return true;
    case FRAME_PING: outbox_frame(&outbox, FRAME_PONG, 0, frame->id, NULL, 0); return true;
    case FRAME_RELEASE: group_release(frame->id); return true;
    case FRAME_PAUSE: signal_all(frame, SIGSTOP); return true;
    case FRAME_RESUME: signal_all(frame, SIGCONT); return true;
    default: return files_answer(&outbox, frame);
  }
}

static int take_signals(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  if (sigprocmask(SIG_SETMASK, &set, NULL)) fail("sigprocmask");
  int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd < 0) fail("signalfd");
  return fd;
}

static void serve(int signals) {
  static struct pollfd set[2 + EXECUTIONS_MAX * POLLED_PER_EXECUTION];
  struct inbox inbox = {0};
  for (;;) {
    int timeout_ms = exec_deadlines();
    outbox_flush(&outbox, control);
    if (outbox.broken) return;
    size_t waiting = outbox_waiting(&outbox);
    set[0] = (struct pollfd){.fd = control, .events = (short)(waiting ? POLLIN | POLLOUT : POLLIN)};
    set[1] = (struct pollfd){.fd = signals, .events = POLLIN};
    int count = exec_poll_set(set + 2, waiting < LISTEN_BELOW_BYTES);
    if (poll(set, (nfds_t)(count + 2), timeout_ms) < 0 && errno != EINTR) return;
    exec_handle(&outbox, set + 2, count);
    if (set[1].revents) {
      struct signalfd_siginfo caught;
      while (read(signals, &caught, sizeof caught) > 0) {
      }
      exec_reap(&outbox);
    }
    if (!(set[0].revents & (POLLIN | POLLHUP | POLLERR))) continue;
    if (inbox_receive(&inbox, control) < 0) return;
    struct frame frame;
    int next;
    while ((next = inbox_next(&inbox, &frame)) > 0)
      if (!answer(&frame)) return;
    if (next < 0) return;
  }
}

void init_run(struct given given) {
  /* Descriptors 0 to 3 belong to programs: keep the control socket out of their way. */
  control = fcntl(given.control, F_DUPFD_CLOEXEC, 10);
  int kept_score = fcntl(given.score, F_DUPFD_CLOEXEC, 10);
  if (control < 0 || kept_score < 0) _exit(1);
  close(given.control);
  close(given.score);
  groups_set_up(given.first_group, given.groups, given.has_first, given.has_network);
  for (int fd = 0; fd < 4; fd++)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR | O_CLOEXEC) != fd) fail("open(/dev/null)");
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  prctl(PR_SET_NAME, "tiltyard-init", 0, 0, 0);
  signal(SIGPIPE, SIG_IGN);
  int signals = take_signals();
  if (!files_set_up()) fail("open(/)");
  start_set_up(kept_score);
  exec_set_up(given.for_zygotes);
  /* All that it starts inherits these, so each program is spared forty calls of its own. */
  const char *failed = landlock_restrict(given.for_zygotes, given.has_network);
  if (!failed && !given.for_zygotes) failed = restrict_capabilities();
  if (!failed && !given.for_zygotes) failed = restrict_system_calls();
  if (failed) fail(failed);
  struct body hello = {.length = 0};
  put_u32(&hello, PROTOCOL_VERSION);
  outbox_frame(&outbox, FRAME_HELLO, 0, 0, hello.bytes, hello.length);
  outbox_flush(&outbox, control);
  serve(signals);
  _exit(0);
}
