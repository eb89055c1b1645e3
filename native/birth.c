/* See birth.h. */
#include "birth.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "spare.h"

#define IDS_PER_SANDBOX 65536u

static const char *map_ids(pid_t pid, uint32_t first_id) {
  char path[64], map[64];
  if (first_id)
    snprintf(map, sizeof map, "0 %u %u", first_id, IDS_PER_SANDBOX);
  else
    snprintf(map, sizeof map, "0 0 1");
  snprintf(path, sizeof path, "/proc/%d/uid_map", pid);
  if (write_to(path, map)) return "write(uid_map)";
  snprintf(path, sizeof path, "/proc/%d/gid_map", pid);
  return write_to(path, map) ? "write(gid_map)" : NULL;
}

/* What the kernel counts for each user (inotify instances, pending signals, message queues) it also
 * counts for the user who made the namespace. That has to be the sandbox's own id: of root's share one
 * sandbox could take all, and with it everybody's. */
static pid_t clone_as(uint32_t owner, struct clone_args *arguments) {
  if (owner && setresuid((uid_t)-1, owner, (uid_t)-1)) return -1;
  /* Taken away by that; without it the child could not open its own entries in /proc. */
  prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  pid_t pid = (pid_t)syscall(SYS_clone3, arguments, sizeof *arguments);
  int error = errno;
  if (owner && pid != 0 && setresuid((uid_t)-1, 0, (uid_t)-1)) _exit(1); /* nobody to go on as */
  errno = error;
  return pid;
}

static pid_t clone_child(const struct cgroup_entry *entry, struct spare *spare, uint32_t first_id,
                         int *pidfd) {
  if (spare && !spare_enter(spare)) return -1;
  struct clone_args arguments = {
      .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD |
               (spare ? 0 : CLONE_NEWNET),
      .pidfd = (uint64_t)(uintptr_t)pidfd,
      .exit_signal = SIGCHLD};
  if (entry->into >= 0) {
    arguments.flags |= CLONE_INTO_CGROUP;
    arguments.cgroup = (uint64_t)entry->into;
  }
  pid_t pid = clone_as(first_id, &arguments);
  if (pid != 0 && spare) spare_leave();
  return pid;
}

/* Without a network namespace that lies ready the sandbox makes its own, unless it is to be set up. */
static const char *take_network(struct owned *owned, struct network *network) {
  owned->spare = spare_take();
  if (network->mode == NETWORK_NONE) return NULL;
  return owned->spare ? spare_furnish(owned->spare, network) : "unshare(network)";
}

const char *birth(struct owned *owned, struct network *network, int fds[2]) {
  const struct rootfs *rootfs = &owned->rootfs;
  int sockets[2], go[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets)) return "socketpair";
  if (pipe2(go, O_CLOEXEC)) {
    int error = errno;
    close(sockets[0]);
    close(sockets[1]);
    errno = error;
    return "pipe";
  }
  fflush(NULL);
  struct cgroup_entry entry;
  const char *failed = owned_open_entry(owned, &entry);
  if (!failed) failed = take_network(owned, network);
  pid_t pid = failed ? -1 : clone_child(&entry, owned->spare, rootfs->first_id, &fds[1]);
  if (pid == 0) {
    close(go[1]);
    struct child child = {.control = sockets[1], .go = go[0], .has_network = network->mode != NETWORK_NONE};
    child_run(rootfs, &entry, child);
  }
  int error = errno;
  owned->spare = spare_kept(owned->spare);
  entry_close(&entry);
  close(sockets[1]);
  close(go[0]);
  fds[0] = sockets[0];
  errno = error;
  if (!failed) failed = pid < 0 ? "clone3(namespaces)" : map_ids(pid, rootfs->first_id);
  if (!failed) failed = rootfs_shift(rootfs, pid);
  if (!failed && write(go[1], "", 1) != 1) failed = "write(go)";
  error = errno;
  close(go[1]); /* without the byte the child exits */
  if (failed) {
    close(fds[0]);
    if (pid > 0) {
      close(fds[1]);
      kill(pid, SIGKILL);
      while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
      }
    }
  } else {
    owned->pid = pid;
  }
  errno = error;
  return failed;
}
