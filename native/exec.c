/* Theory of operation
 *
 * An execution is one main process and up to three descriptors that the supervisor reads: its
 * standard output, its standard error and, when asked for, a stream socket called the channel. With
 * a terminal it is one, which carries both. Standard input is a file in memory, so that there is
 * nothing to feed; or, when asked for, a pipe or the terminal. Those are fed as far as the program
 * reads, and the host is told what was taken, so neither side ever holds more than one window of it.
 * The execution is over when its main process is reaped: what its pipes hold by then is forwarded,
 * then EXIT is sent; a child that still holds a pipe is not waited for. What such a child does then
 * is the sandbox's background: it lives until the sandbox ends, or until `kill` of everything.
 *
 * The wait status, the byte counts and the resources are facts that the program cannot write. What
 * they mean (a timeout, an out-of-memory kill) is decided by the host. Runs of a zygote are
 * executions too, started and reaped elsewhere: see forks.c.
 */
#include "exec.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "forks.h"
#include "start.h"
#include "tree.h"

#define CHANNEL_BYTES_MAX (16u << 20)
#define OF_PROGRAMS (SPAWN_STREAM | SPAWN_PTY | SPAWN_USER | SPAWN_IDLE)

static bool restrict_each_program;
static uint64_t paused_us; /* since when; 0: programs go on */

void exec_set_up(bool restrict_each) { restrict_each_program = restrict_each; }

static void spawn(struct outbox *outbox, uint32_t id, const struct start *start,
                  const struct limits *limits, uint32_t idle_ms) {
  struct execution *execution = execution_add(id, *limits);
  if (!execution) {
    execution_refuse(outbox, id, EAGAIN, "executions at once");
    return;
  }
  struct ends ends;
  execution->group = start->group.number;
  const char *failed = start_program(start, limits, restrict_each_program, &ends,
                                     &execution->report, &execution->pid);
  if (failed) {
    execution_refuse(outbox, id, errno, failed);
    group_release(execution->group);
    execution->used = false;
    return;
  }
  memcpy(execution->fds, ends.captures, sizeof ends.captures);
  execution->input = ends.input;
  execution->terminal = ends.terminal;
  execution->idle_us = idle_ms * 1000ull;
  execution->zygote = start->flags & SPAWN_ZYGOTE;
}

static struct terminal_size field_size(struct fields *fields) {
  uint32_t rows = field_u32(fields), columns = field_u32(fields);
  if (rows > UINT16_MAX || columns > UINT16_MAX) fields->bad = true;
  return (struct terminal_size){.rows = (uint16_t)rows, .columns = (uint16_t)columns};
}

void exec_spawn(struct outbox *outbox, const struct frame *frame) {
  struct fields fields = fields_of(frame);
  struct start start = {.flags = field_u32(&fields), .group = group_none()};
  struct limits limits = field_limits(&fields);
  start.argv = field_strings(&fields, ARGUMENTS_MAX);
  start.env = field_strings(&fields, ARGUMENTS_MAX);
  start.cwd = text_copy(field_text(&fields));
  start.input = field_text(&fields);
  if (start.flags & SPAWN_PTY) start.size = field_size(&fields);
  if (start.flags & SPAWN_USER) start.user = text_copy(field_text(&fields));
  uint32_t idle_ms = start.flags & SPAWN_IDLE ? field_u32(&fields) : 0;
  bool both = (start.flags & OF_PROGRAMS) && (start.flags & (SPAWN_CHANNEL | SPAWN_ZYGOTE));
  bool no_user = (start.flags & SPAWN_USER) && !start.user;
  if (fields.bad || both || no_user || !start.cwd || !start.argv[0]) {
    execution_refuse(outbox, frame->id, EINVAL, "spawn");
  } else {
    if (!(start.flags & SPAWN_ZYGOTE)) start.group = group_use();
    spawn(outbox, frame->id, &start, &limits, idle_ms);
  }
  free_strings(start.argv);
  free_strings(start.env);
  free(start.cwd);
  free(start.user);
}

void exec_fork(struct outbox *outbox, const struct frame *frame) { forks_order(outbox, frame); }

static void stop_input(struct outbox *outbox, struct execution *execution) {
  close_fd(&execution->input);
  execution->given_start = execution->given_used;
  outbox_frame(outbox, FRAME_TAKEN, 0, execution->id, NULL, 0);
}

static ssize_t give(const struct execution *execution, const uint8_t *bytes, size_t length) {
  if (execution->input >= 0) return write(execution->input, bytes, length);
  return send(execution->fds[CAPTURE_CHANNEL], bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Gives a program what it will take now. */
static void feed(struct outbox *outbox, struct execution *execution) {
  uint32_t taken = 0;
  bool streamed = execution->input >= 0, closed = false;
  while (!closed && execution->given_start < execution->given_used) {
    ssize_t sent = give(execution, execution->given + execution->given_start,
                        execution->given_used - execution->given_start);
    if (sent > 0) {
      execution->given_start += (size_t)sent;
      taken += (uint32_t)sent;
    } else if (sent < 0 && errno != EAGAIN && errno != EINTR) {
      closed = true;
    } else {
      break;
    }
  }
  if (closed) execution->given_start = execution->given_used;
  if (!streamed) return;
  if (taken) {
    struct body body = {.length = 0};
    put_u32(&body, taken);
    outbox_frame(outbox, FRAME_TAKEN, 0, execution->id, body.bytes, body.length);
  }
  bool ended = execution->given_ends && execution->given_start == execution->given_used;
  if (closed || ended) stop_input(outbox, execution);
}

void exec_input(struct outbox *outbox, const struct frame *frame) {
  struct execution *execution = execution_find(frame->id);
  if (!execution || execution->zygote) return;
  if (execution->input < 0 && execution->fds[CAPTURE_CHANNEL] < 0) return;
  size_t waiting = execution->given_used - execution->given_start;
  size_t most = execution->input >= 0 ? INPUT_WINDOW_BYTES : CHANNEL_BYTES_MAX;
  uint8_t *joined = waiting + frame->length > most ? NULL : malloc(waiting + frame->length + 1);
  if (!joined) {
    execution_kill(execution, EXIT_INPUT);
    return;
  }
  if (waiting) memcpy(joined, execution->given + execution->given_start, waiting);
  memcpy(joined + waiting, frame->body, frame->length);
  free(execution->given);
  execution->given = joined;
  execution->given_start = 0;
  execution->given_used = waiting + frame->length;
  feed(outbox, execution);
}

void exec_close_input(struct outbox *outbox, const struct frame *frame) {
  struct execution *execution = execution_find(frame->id);
  /* A terminal is not closed under its program; the host types the end of input into it. */
  if (!execution || execution->input < 0 || execution->terminal >= 0) return;
  execution->given_ends = true;
  feed(outbox, execution);
}

static void all_signal(const struct execution *execution, int number) {
  if (!group_signal(execution->group, number)) tree_signal(execution->pid, number);
}

void exec_signal(const struct frame *frame) {
  struct fields fields = fields_of(frame);
  uint32_t number = field_u32(&fields), whole = field_u32(&fields);
  const struct execution *execution = execution_find(frame->id);
  if (fields.bad || number < 1 || number > 64) return;
  if (!execution || execution->forked || execution->zygote) return;
  /* Its pid cannot be another's: it is not reaped before its execution is over. */
  if (whole)
    all_signal(execution, (int)number);
  else if (kill(-execution->pid, (int)number)) /* it does not lead its group yet */
    kill(execution->pid, (int)number);
}

void exec_pause(bool paused) {
  uint64_t now = now_us(), since = paused_us;
  if (paused) {
    paused_us = since ? since : now;
    return;
  }
  paused_us = 0;
  for (int i = 0; since && i < EXECUTIONS_MAX; i++) {
    struct execution *execution = &executions[i];
    uint64_t from = execution->started_us > since ? execution->started_us : since;
    if (!execution->used || execution->flags & EXIT_FORCED) continue;
    if (execution->deadline_us) execution->deadline_us += now - from;
    execution->heard_us = now;
  }
}

void exec_resize(const struct frame *frame) {
  struct fields fields = fields_of(frame);
  struct terminal_size size = field_size(&fields);
  const struct execution *execution = execution_find(frame->id);
  if (!fields.bad && execution && execution->terminal >= 0) terminal_resize(execution->input, size);
}

void exec_kill(uint32_t id) {
  for (int i = 0; i < EXECUTIONS_MAX; i++)
    if (executions[i].used && (id == 0 || executions[i].id == id))
      execution_kill(&executions[i], EXIT_KILLED);
  if (id == 0) kill(-1, SIGKILL); /* also what earlier executions left running */
}

int exec_poll_set(struct pollfd *set, bool listen) {
  int count = 0;
  for (int i = 0; i < EXECUTIONS_MAX; i++) {
    struct execution *execution = &executions[i];
    if (!execution->used) continue;
    bool waiting = execution->given_start < execution->given_used;
    if (!listen) execution->heard_us = now_us(); /* it may be the one that is waiting */
    if (execution->input >= 0) /* with no event asked for, the end of its last reader still is */
      set[count++] = (struct pollfd){.fd = execution->input, .events = waiting ? POLLOUT : 0};
    for (int which = 0; which < CAPTURES; which++) {
      if (execution->fds[which] < 0) continue;
      short events = listen || execution->zygote ? POLLIN : 0;
      if (which == CAPTURE_CHANNEL && waiting) events |= POLLOUT;
      set[count++] = (struct pollfd){.fd = execution->fds[which], .events = events};
    }
  }
  return count;
}

static void handle(struct outbox *outbox, struct execution *execution, int which, short events) {
  if (which == CAPTURE_CHANNEL && execution->zygote) {
    forks_hear(outbox, execution);
    if (events & POLLHUP) close_fd(&execution->fds[which]);
    return;
  }
  if (events & POLLOUT) feed(outbox, execution);
  if (!(events & (POLLIN | POLLHUP | POLLERR))) return;
  if (execution_forward(outbox, execution, which) != 0) return;
  close_fd(&execution->fds[which]);
  if (which == CAPTURE_CHANNEL) outbox_frame(outbox, FRAME_CHANNEL, 0, execution->id, NULL, 0);
}

void exec_handle(struct outbox *outbox, const struct pollfd *set, int count) {
  for (int n = 0; n < count; n++) {
    if (!set[n].revents) continue;
    /* An earlier entry may have ended the execution and freed its descriptors: look it up again. */
    for (int i = 0; i < EXECUTIONS_MAX; i++) {
      struct execution *execution = &executions[i];
      if (execution->used && execution->input == set[n].fd) {
        if (set[n].revents & POLLERR)
          stop_input(outbox, execution);
        else
          feed(outbox, execution);
        break;
      }
      for (int which = 0; execution->used && which < CAPTURES; which++)
        if (execution->fds[which] == set[n].fd) {
          handle(outbox, execution, which, set[n].revents);
          i = EXECUTIONS_MAX;
          break;
        }
    }
  }
}

static uint64_t microseconds(struct timeval time) {
  return (uint64_t)time.tv_sec * 1000000u + (uint64_t)time.tv_usec;
}

void exec_reap(struct outbox *outbox) {
  int status;
  struct rusage usage;
  pid_t pid;
  while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
    for (int i = 0; i < EXECUTIONS_MAX; i++) {
      struct execution *execution = &executions[i];
      if (!execution->used || execution->pid != pid) continue;
      struct used used = {.user_us = microseconds(usage.ru_utime),
                          .system_us = microseconds(usage.ru_stime),
                          .peak_kib = (uint64_t)usage.ru_maxrss,
                          .read_blocks = (uint64_t)usage.ru_inblock,
                          .written_blocks = (uint64_t)usage.ru_oublock};
      bool zygote = execution->zygote;
      uint32_t id = execution->id;
      if (zygote) forks_hear(outbox, execution);
      execution_finish(outbox, execution, status, &used);
      if (zygote) forks_end_all(outbox, id);
      break;
    }
  }
}

/* When it is to be ended next, and as what; 0: never. */
static uint64_t due_us(struct execution *execution, uint64_t now, uint32_t *why) {
  uint64_t due = execution->deadline_us;
  if (paused_us && !(execution->flags & EXIT_FORCED)) return 0;
  *why = execution->flags & EXIT_FORCED ? 0 : EXIT_WALL;
  if (!execution->idle_us || execution->flags & EXIT_FORCED) return due;
  uint64_t silent = execution->heard_us + execution->idle_us;
  /* A supervisor that got no time to listen must not call a program silent. */
  if (silent <= now && execution_has_spoken(execution))
    silent = (execution->heard_us = now) + execution->idle_us;
  if (due && due <= silent) return due;
  *why = EXIT_IDLE;
  return silent;
}

int exec_deadlines(void) {
  uint64_t now = now_us(), next = 0;
  for (int i = 0; i < EXECUTIONS_MAX; i++) {
    struct execution *execution = &executions[i];
    uint32_t why;
    uint64_t due = execution->used ? due_us(execution, now, &why) : 0;
    if (due && due <= now) {
      execution_kill(execution, why);
      due = execution->deadline_us; /* to try again, until it is gone */
    }
    if (due && (!next || due < next)) next = due;
  }
  if (!next) return -1;
  return next > now ? (int)((next - now + 999) / 1000) : 0;
}
