/* tiltyard-launcher: makes sandboxes for one host process.
 *
 * Theory of operation. The host starts this program early and once, because forking a large Python
 * process is slow and this one stays small. It takes requests on a SOCK_SEQPACKET socket that
 * it was started with, one message each, and answers each with one message; see `serve_request`. For a sandbox it
 * clones a child into new namespaces, writes its id maps, puts it into its cgroups, and hands back the
 * control socket and a pidfd without waiting: the child builds its own root (rootfs.c), becomes
 * tiltyard-init and says HELLO on the control socket, or says there which call failed.
 *
 * It owns what it made. When a sandbox is reaped its cgroups are removed, and only then is it reported
 * as gone. When the host ends, the request socket ends, or, where a child of the host's still holds
 * that, the host's pidfd tells: every sandbox is killed, reaped and removed, and the launcher exits.
 * When the launcher itself is killed, the parent-death signal takes the sandboxes, and the host, or
 * the next host's sweep, takes the empty cgroups.
 *
 * Rungs: as root, in-sandbox ids are a range of unprivileged ids of the host. As an ordinary user the
 * launcher makes a user namespace for itself first; in-sandbox root is then that user.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frames.h"
#include "owned.h"
#include "rootfs.h"

#define REQUEST_BYTES_MAX 65536
#define IDS_PER_SANDBOX 65536u

enum { REQUEST_IMAGE = 1, REQUEST_CREATE = 2 };
enum { REPLY_OK = 1, REPLY_FAILED = 2, REPLY_GONE = 3 };

static int requests;
static bool as_root;
static int init_program = -1;

static void reply(uint32_t kind, struct text id, int error, const char *step, const int *fds, int count) {
  struct body body = {.length = 0};
  char name[SANDBOX_ID_BYTES];
  snprintf(name, sizeof name, "%.*s", (int)id.length, id.bytes);
  put_u32(&body, kind);
  put_u32(&body, (uint32_t)error);
  put_text(&body, name);
  put_text(&body, step);
  struct iovec part = {.iov_base = body.bytes, .iov_len = body.length};
  union { char bytes[CMSG_SPACE(2 * sizeof(int))]; struct cmsghdr align; } control = {{0}};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  if (count) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
    memcpy(CMSG_DATA(rights), fds, (size_t)count * sizeof(int));
  }
  while (sendmsg(requests, &message, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

static int write_to(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t wrote = write(fd, text, strlen(text));
  int error = errno;
  close(fd);
  errno = error;
  return wrote < 0 ? -1 : 0;
}

static const char *map_ids(pid_t pid, uint32_t first_id) {
  char path[64], map[64];
  if (as_root)
    snprintf(map, sizeof map, "0 %u %u", first_id, IDS_PER_SANDBOX);
  else
    snprintf(map, sizeof map, "0 0 1");
  snprintf(path, sizeof path, "/proc/%d/uid_map", pid);
  if (write_to(path, map)) return "write(uid_map)";
  snprintf(path, sizeof path, "/proc/%d/gid_map", pid);
  return write_to(path, map) ? "write(gid_map)" : NULL;
}

static const char *become_init(const struct rootfs *rootfs) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL)) return "prctl(PDEATHSIG)";
  if (setresgid(0, 0, 0) || setresuid(0, 0, 0)) return "setresuid";
  if (as_root && syscall(SYS_setgroups, 0, NULL)) return "setgroups";
  /* Changing ids clears it, so it is set again. */
  if (prctl(PR_SET_PDEATHSIG, SIGKILL)) return "prctl(PDEATHSIG)";
  if (unshare(CLONE_NEWCGROUP)) return "unshare(cgroup)";
  const char *failed = rootfs_enter(rootfs);
  if (failed) return failed;
  if (sethostname("sandbox", 7)) return "sethostname";
  static char *const plain[] = {"tiltyard-init", NULL};
  static char *const zygotes[] = {"tiltyard-init", "--for-zygotes", NULL};
  static char *const environment[] = {NULL};
  syscall(SYS_execveat, init_program, "", rootfs->for_zygotes ? zygotes : plain, environment,
          AT_EMPTY_PATH);
  return "exec(tiltyard-init)";
}

static void run_child(const struct rootfs *rootfs, const struct cgroup_entry *entry, int control, int go) {
  char byte;
  const char *failed = entry_take(entry);
  int error = errno;
  if (read(go, &byte, 1) != 1) _exit(1); /* the launcher gave up on it, or died */
  /* The host's own streams (a terminal, a log) stay out of the sandbox. */
  int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; fd++)
    if (nothing < 0 || dup2(nothing, fd) < 0) _exit(1);
  /* Park both beyond 3, then keep just the control socket (3) and the program to execute. */
  int parked = fcntl(control, F_DUPFD_CLOEXEC, 10), program = fcntl(init_program, F_DUPFD_CLOEXEC, 10);
  if (parked < 0 || program < 0 || dup2(parked, 3) < 0 || dup2(program, 4) < 0) _exit(1);
  fcntl(4, F_SETFD, FD_CLOEXEC);
  init_program = 4;
  close_range(5, ~0u, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  errno = error;
  if (!failed) failed = become_init(rootfs);
  struct outbox outbox = {0};
  struct body body = {.length = 0};
  put_u32(&body, (uint32_t)errno);
  put_text(&body, failed);
  outbox_frame(&outbox, FRAME_ERROR, 0, 0, body.bytes, body.length);
  outbox_flush(&outbox, 3);
  _exit(1);
}

static pid_t clone_child(const struct cgroup_entry *entry, int *pidfd) {
  struct clone_args arguments = {
      .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
               CLONE_PIDFD,
      .pidfd = (uint64_t)(uintptr_t)pidfd,
      .exit_signal = SIGCHLD};
  if (entry->into >= 0) {
    arguments.flags |= CLONE_INTO_CGROUP;
    arguments.cgroup = (uint64_t)entry->into;
  }
  return (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
}

static const char *start_sandbox(const struct rootfs *rootfs, uint32_t first_id, struct owned *owned,
                                 int fds[2]) {
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
  pid_t pid = failed ? -1 : clone_child(&entry, &fds[1]);
  if (pid == 0) {
    close(go[1]);
    run_child(rootfs, &entry, sockets[1], go[0]);
  }
  int error = errno;
  entry_close(&entry);
  close(sockets[1]);
  close(go[0]);
  fds[0] = sockets[0];
  errno = error;
  if (!failed) failed = pid < 0 ? "clone3(namespaces)" : map_ids(pid, first_id);
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

static void create(struct fields *fields) {
  struct text id = field_text(fields);
  struct rootfs rootfs = {.image = field_u32(fields)};
  rootfs.disk_bytes = field_u64(fields);
  rootfs.inodes = field_u64(fields);
  rootfs.for_zygotes = field_u32(fields) & 1;
  uint32_t first_id = field_u32(fields);
  struct owned *owned = owned_add(id, fields);
  int fds[2];
  const char *failed = owned ? owned_make_cgroups(owned, fields) : "sandbox request";
  if (!failed) failed = start_sandbox(&rootfs, first_id, owned, fds);
  if (failed) {
    int error = errno;
    if (owned) owned_give_up(owned);
    reply(REPLY_FAILED, id, error, failed, NULL, 0);
    return;
  }
  reply(REPLY_OK, id, 0, "", fds, 2);
  close(fds[0]);
  close(fds[1]);
}

/* False when the host is gone. */
static bool serve_request(void) {
  static uint8_t bytes[REQUEST_BYTES_MAX];
  struct iovec part = {.iov_base = bytes, .iov_len = sizeof bytes};
  union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control = {{0}};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                           .msg_controllen = sizeof control.bytes};
  ssize_t got = recvmsg(requests, &message, MSG_CMSG_CLOEXEC);
  if (got < 0) return errno == EINTR;
  if (got == 0) return false;
  int attached = -1;
  struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
  if (rights && rights->cmsg_type == SCM_RIGHTS) memcpy(&attached, CMSG_DATA(rights), sizeof attached);
  struct fields fields = {.at = bytes, .end = bytes + got, .bad = false};
  uint32_t kind = field_u32(&fields);
  if (message.msg_flags & MSG_TRUNC) {
    reply(REPLY_FAILED, field_text(&fields), EMSGSIZE, "request", NULL, 0);
  } else if (kind == REQUEST_CREATE) {
    create(&fields);
  } else if (kind == REQUEST_IMAGE && attached >= 0) {
    struct text id = field_text(&fields);
    const char *failed = stage_image(field_u32(&fields), attached);
    reply(failed ? REPLY_FAILED : REPLY_OK, id, failed ? errno : 0, failed ? failed : "", NULL, 0);
  } else {
    reply(REPLY_FAILED, (struct text){"", 0}, EINVAL, "request", NULL, 0);
  }
  if (attached >= 0) close(attached);
  return true;
}

static void tell_gone(const char *id, uint32_t oom_kills) {
  reply(REPLY_GONE, (struct text){id, (uint32_t)strlen(id)}, (int)oom_kills, "", NULL, 0);
}

static void fail(const char *step) {
  reply(REPLY_FAILED, (struct text){"launcher", 8}, errno, step, NULL, 0);
  exit(1);
}

/* A sealed copy in memory: no program can reach the host's file through /proc/1/exe. */
static void load_init(const char *path) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  struct stat about;
  if (file < 0 || fstat(file, &about)) fail("open(tiltyard-init)");
  init_program = memfd_create("tiltyard-init", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (init_program < 0) fail("memfd_create");
  for (off_t left = about.st_size; left > 0;) {
    ssize_t sent = sendfile(init_program, file, NULL, (size_t)left);
    if (sent <= 0) fail("sendfile(tiltyard-init)");
    left -= sent;
  }
  if (fcntl(init_program, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL))
    fail("fcntl(F_ADD_SEALS)");
  close(file);
}

static void enter_own_namespaces(void) {
  uid_t uid = getuid();
  gid_t gid = getgid();
  if (unshare(as_root ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS)) fail("unshare(user, mount)");
  if (as_root) return;
  char map[64];
  if (write_to("/proc/self/setgroups", "deny")) fail("write(setgroups)");
  snprintf(map, sizeof map, "0 %u 1", uid);
  if (write_to("/proc/self/uid_map", map)) fail("write(uid_map)");
  snprintf(map, sizeof map, "0 %u 1", gid);
  if (write_to("/proc/self/gid_map", map)) fail("write(gid_map)");
}

/* Serves until the host is gone. */
static void serve(int host, int signals) {
  for (bool open = true; open;) {
    struct pollfd polled[3] = {{.fd = requests, .events = POLLIN},
                               {.fd = signals, .events = POLLIN},
                               {.fd = host, .events = POLLIN}};
    int timeout_ms = owned_sweep(tell_gone);
    if (poll(polled, 3, timeout_ms) < 0) continue;
    struct signalfd_siginfo caught;
    while (polled[1].revents && read(signals, &caught, sizeof caught) > 0) {
    }
    if (polled[2].revents) return;
    if (polled[0].revents) open = serve_request();
  }
}

int main(int argc, char **argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: tiltyard-launcher SOCKET HOST-PIDFD INIT STAGE [CGROUP...]\n");
    return 2;
  }
  requests = atoi(argv[1]);
  int host = atoi(argv[2]);
  fcntl(requests, F_SETFD, FD_CLOEXEC);
  fcntl(host, F_SETFD, FD_CLOEXEC);
  as_root = geteuid() == 0;
  load_init(argv[3]);
  enter_own_namespaces();
  const char *failed = stage_set_up(argv[4]);
  if (failed) fail(failed);
  if ((failed = owned_set_up(argv + 5))) fail(failed);
  if (chdir("/")) fail("chdir");
  /* A child may be killed before it was told to go on: that is its loss, not the launcher's. */
  signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigaddset(&set, SIGINT);  /* a terminal's Ctrl-C is the host's to handle; its end is ours */
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_SETMASK, &set, NULL);
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  int signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals < 0) fail("signalfd");
  reply(REPLY_OK, (struct text){"launcher", 8}, 0, "", NULL, 0);
  serve(host, signals);
  owned_end_all();
  return 0;
}
