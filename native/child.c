/* See child.h. */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "frames.h"
#include "init.h"

/* The given descriptors are in place. Returns only when a step failed. */
static const char *become_init(const struct rootfs *rootfs, struct given given) {
  bool as_root = rootfs->first_id != 0;
  if (prctl(PR_SET_PDEATHSIG, SIGKILL)) return "prctl(PDEATHSIG)";
  if (setresgid(0, 0, 0) || setresuid(0, 0, 0)) return "setresuid";
  if (as_root && syscall(SYS_setgroups, 0, NULL)) return "setgroups";
  /* Changing ids clears it, so it is set again. */
  if (prctl(PR_SET_PDEATHSIG, SIGKILL)) return "prctl(PDEATHSIG)";
  if (unshare(CLONE_NEWCGROUP)) return "unshare(cgroup)";
  const char *failed = rootfs_enter(rootfs);
  if (failed) return failed;
  if (sethostname("sandbox", 7)) return "sethostname";
  close_range((unsigned)(given.first_group + given.groups * (given.has_first ? 2 : 1)), ~0u, 0);
  init_run(given);
}

void child_run(const struct rootfs *rootfs, const struct cgroup_entry *entry, struct child child) {
  char byte;
  const char *failed = entry_take(entry);
  int error = errno;
  if (read(child.go, &byte, 1) != 1) _exit(1); /* the launcher gave up on it, or died */
  /* The host's own streams (a terminal, a log) stay out of the sandbox. */
  int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; fd++)
    if (nothing < 0 || dup2(nothing, fd) < 0) _exit(1);
  /* Its own score can be opened only while it is still the host's. */
  int score = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
  if (dup2(child.control, 3) < 0 || score < 0 || dup2(score, 4) < 0) _exit(1);
  for (int i = 0; i < entry->groups; i++) {
    if (dup2(entry->group[i], 5 + i) < 0) _exit(1);
    if (entry->has_first && dup2(entry->first[i], 5 + entry->groups + i) < 0) _exit(1);
  }
  struct given given = {.control = 3, .score = 4, .first_group = 5, .groups = entry->groups,
                        .has_first = entry->has_first,
                        .for_zygotes = rootfs->for_zygotes, .has_network = child.has_network};
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  errno = error;
  if (!failed) failed = become_init(rootfs, given);
  struct outbox outbox = {0};
  struct body body = {.length = 0};
  put_u32(&body, (uint32_t)errno);
  put_text(&body, failed);
  outbox_frame(&outbox, FRAME_ERROR, 0, 0, body.bytes, body.length);
  outbox_flush(&outbox, 3);
  _exit(1);
}
