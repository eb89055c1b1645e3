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
#include <unistd.h>

#define ABOVE_ALL 100 /* where the child parks descriptors while it fills 0 to 3 */

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

/* When memory runs out, programs go before the supervisor and the zygote. A program inherits its score:
 * the supervisor takes the worst one for the length of a fork, because it may not open its child's. */
static pid_t fork_scored(bool expendable) {
  if (expendable && pwrite(own_score, "1000", 4, 0) != 4) return -1;
  pid_t pid = fork();
  if (pid != 0 && expendable) {
    int error = errno;
    (void)!pwrite(own_score, first_score, strlen(first_score), 0);
    errno = error;
  }
  return pid;
}

static const char *become(const struct start *start, const struct limits *limits, bool restrict_it,
                          const int sources[4]) {
  static const int signals[] = {SIGCHLD, SIGPIPE, SIGTERM, SIGINT, SIGHUP};
  sigset_t none;
  sigemptyset(&none);
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) signal(signals[i], SIG_DFL);
  sigprocmask(SIG_SETMASK, &none, NULL);
  if (setsid() < 0) return "setsid";
  int parked[4];
  for (int n = 0; n < 4; n++) {
    parked[n] = sources[n] < 0 ? -1 : fcntl(sources[n], F_DUPFD_CLOEXEC, ABOVE_ALL);
    if (sources[n] >= 0 && parked[n] < 0) return "fcntl(F_DUPFD)";
  }
  for (int n = 0; n < 4; n++)
    if (parked[n] >= 0 && dup2(parked[n], n) < 0) return "dup2";
  umask(022);
  if (chdir(start->cwd)) return "chdir";
  const char *failed = restrict_resources(limits);
  if (restrict_it && !(start->flags & SPAWN_ZYGOTE)) {
    if (!failed) failed = restrict_capabilities();
    if (!failed) failed = restrict_system_calls();
  }
  if (failed) return failed;
  environ = start->env;
  execvp(start->argv[0], start->argv);
  return "exec";
}

static void child(const struct start *start, const struct limits *limits, bool restrict_it,
                  const int sources[4], int report_source) {
  struct start_failure failure = {0};
  int report = fcntl(report_source, F_DUPFD_CLOEXEC, ABOVE_ALL);
  const char *failed = become(start, limits, restrict_it, sources);
  failure.error = errno;
  strncpy(failure.call, failed, sizeof failure.call - 1);
  (void)!write(report, &failure, sizeof failure);
  _exit(127);
}

const char *start_program(const struct start *start, const struct limits *limits, bool restrict_it,
                          int streams[3], int *report, pid_t *pid) {
  int channel_type = start->flags & SPAWN_ZYGOTE    ? SOCK_SEQPACKET
                     : start->flags & SPAWN_CHANNEL ? SOCK_STREAM
                                                    : 0;
  int far[3], pair[2];
  const char *failed = NULL;
  if (!open_streams(streams, far, channel_type)) return "streams";
  int input = stdin_of(start->input);
  if (input < 0) {
    failed = "stdin";
  } else if (pipe2(pair, O_CLOEXEC | O_NONBLOCK)) {
    failed = "pipe";
  } else {
    *pid = fork_scored(!(start->flags & SPAWN_ZYGOTE));
    if (*pid == 0) {
      const int sources[4] = {input, far[0], far[1], far[2]};
      child(start, limits, restrict_it, sources, pair[1]);
    }
    if (*pid < 0) {
      failed = "fork";
      close(pair[0]);
    } else {
      *report = pair[0];
    }
    int error = errno;
    close(pair[1]);
    errno = error;
  }
  int error = errno;
  if (input >= 0) close(input);
  close_all(far);
  if (failed) close_all(streams);
  errno = error;
  return failed;
}
