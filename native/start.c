/* See start.h. The child reports through a close-on-exec pipe, so the supervisor never waits for it. */
#include "start.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "users.h"

static void close_all(int fds[3]) {
  for (int which = 0; which < 3; which++) {
    if (fds[which] >= 0) close(fds[which]);
    fds[which] = -1;
  }
}

bool open_streams(int near[3], int far[3], int channel_type) {
  int pair[2];
  for (int which = 0; which < 3; which++) near[which] = far[which] = -1;
  for (int which = 0; which < 2; which++) {
    if (pipe2(pair, O_CLOEXEC)) goto failed;
    near[which] = pair[0];
    far[which] = pair[1];
    fcntl(near[which], F_SETFL, O_NONBLOCK);
  }
  if (channel_type) {
    if (socketpair(AF_UNIX, channel_type | SOCK_CLOEXEC, 0, pair)) goto failed;
    near[2] = pair[0];
    far[2] = pair[1];
    fcntl(near[2], F_SETFL, O_NONBLOCK);
  }
  return true;
failed:;
  int error = errno;
  close_all(near);
  close_all(far);
  errno = error;
  return false;
}

static int stdin_of(struct text bytes) {
  if (bytes.length == 0) return open("/dev/null", O_RDONLY | O_CLOEXEC);
  int fd = memfd_create("stdin", MFD_CLOEXEC);
  for (uint32_t done = 0; fd >= 0 && done < bytes.length;) {
    ssize_t wrote = write(fd, bytes.bytes + done, bytes.length - done);
    if (wrote <= 0) {
      close(fd);
      return -1;
    }
    done += (uint32_t)wrote;
  }
  if (fd >= 0) lseek(fd, 0, SEEK_SET);
  return fd;
}

static int own_score = -1;
static char first_score[16];

void start_set_up(int score) {
  own_score = score;
  ssize_t got = pread(score, first_score, sizeof first_score - 1, 0);
  first_score[got > 0 ? got : 0] = 0;
}

static const char *become(const struct start *start, const struct limits *limits, bool restrict_it,
                          const int sources[4]) {
  sigset_t none;
  sigemptyset(&none);
  signal(SIGPIPE, SIG_DFL); /* the one signal that the supervisor ignores */
  sigprocmask(SIG_SETMASK, &none, NULL);
  if (setsid() < 0) return "setsid";
  /* The supervisor holds 0 to 3 itself, so no source is one of them and none is overwritten. */
  for (int n = 0; n < 4; n++)
    if (sources[n] >= 0 && dup2(sources[n], n) < 0) return "dup2";
  const char *failed = start->flags & SPAWN_PTY ? terminal_take() : NULL;
  if (!failed) failed = group_take(&start->group);
  if (failed) return failed;
  umask(022);
  if ((failed = restrict_resources(limits))) return failed;
  bool restricted = restrict_it && !(start->flags & SPAWN_ZYGOTE);
  if (restricted && (failed = restrict_capabilities())) return failed;
  if (start->user && (failed = become_user(start->user))) return failed;
  if (chdir(start->cwd)) return "chdir";
  if (restricted && (failed = restrict_system_calls())) return failed;
  environ = start->env;
  execvp(start->argv[0], start->argv);
  return "exec";
}

static void child(const struct start *start, const struct limits *limits, bool restrict_it,
                  const int sources[4], int report) {
  struct start_failure failure = {0};
  const char *failed = become(start, limits, restrict_it, sources);
  failure.error = errno;
  strncpy(failure.call, failed, sizeof failure.call - 1);
  (void)!write(report, &failure, sizeof failure);
  _exit(127);
}

/* Opens a pipe that a program reads its standard input from. */
static int input_pipe(int *near) {
  int pair[2];
  if (pipe2(pair, O_CLOEXEC)) return -1;
  fcntl(pair[1], F_SETFL, O_NONBLOCK);
  *near = pair[1];
  return pair[0];
}

/* Opens both ends of everything; `far` are the program's descriptors 0 to 3. */
static const char *open_ends(const struct start *start, struct ends *ends, int far[4]) {
  int channel_type = start->flags & SPAWN_ZYGOTE    ? SOCK_SEQPACKET
                     : start->flags & SPAWN_CHANNEL ? SOCK_STREAM
                                                    : 0;
  if (start->flags & SPAWN_PTY) {
    const char *failed = terminal_open(start->size, &ends->captures[0], &ends->terminal);
    if (failed) return failed;
    for (int n = 0; n < 3; n++) far[n] = ends->terminal;
    ends->input = fcntl(ends->captures[0], F_DUPFD_CLOEXEC, 4);
    return ends->input < 0 ? "fcntl(F_DUPFD)" : NULL;
  }
  if (!open_streams(ends->captures, far + 1, channel_type)) return "streams";
  far[0] = start->flags & SPAWN_STREAM ? input_pipe(&ends->input) : stdin_of(start->input);
  return far[0] < 0 ? "stdin" : NULL;
}

static void close_ends(struct ends *ends) {
  close_all(ends->captures);
  if (ends->input >= 0) close(ends->input);
  if (ends->terminal >= 0) close(ends->terminal);
  *ends = (struct ends){.captures = {-1, -1, -1}, .input = -1, .terminal = -1};
}

/* Whether the supervisor is the only process of the sandbox: every other one is its child, or comes
 * to be when its parent ends. */
static bool alone(void) {
  siginfo_t found;
  return waitid(P_ALL, 0, &found, WEXITED | WNOHANG | WNOWAIT | __WALL) < 0 && errno == ECHILD;
}

/* Makes the child. vfork is faster by an eighth of a whole run of a small program. It makes the
 * supervisor wait for the child, which shares its memory and never returns from `child`. So it is for
 * when nobody is there who could stop the child half-way, and so the supervisor for good.
 *
 * When memory runs out, programs go before the supervisor and the zygote. A program inherits its score:
 * the supervisor takes the worst one meanwhile, because it may not open its child's. */
static const char *split(const struct start *start, const struct limits *limits, bool restrict_it,
                         const int sources[4], int report, pid_t *pid) {
  bool expendable = !(start->flags & SPAWN_ZYGOTE);
  char **own = environ;
  if (expendable && pwrite(own_score, "1000", 4, 0) != 4) return "write(oom_score_adj)";
  *pid = alone() ? vfork() : fork();
  if (*pid == 0) child(start, limits, restrict_it, sources, report);
  int error = errno;
  environ = own;
  if (expendable) (void)!pwrite(own_score, first_score, strlen(first_score), 0);
  errno = error;
  return *pid < 0 ? "fork" : NULL;
}

const char *start_program(const struct start *start, const struct limits *limits, bool restrict_it,
                          struct ends *ends, int *report, pid_t *pid) {
  int far[4] = {-1, -1, -1, -1}, pair[2] = {-1, -1};
  *ends = (struct ends){.captures = {-1, -1, -1}, .input = -1, .terminal = -1};
  const char *failed = open_ends(start, ends, far);
  if (!failed && pipe2(pair, O_CLOEXEC | O_NONBLOCK)) failed = "pipe";
  if (!failed) failed = split(start, limits, restrict_it, far, pair[1], pid);
  int error = errno;
  if (pair[1] >= 0) close(pair[1]);
  if (ends->terminal < 0) { /* else they are that, and stay open */
    if (far[0] >= 0) close(far[0]);
    close_all(far + 1);
  }
  if (failed) {
    if (pair[0] >= 0) close(pair[0]);
    close_ends(ends);
  } else {
    *report = pair[0];
  }
  errno = error;
  return failed;
}
