/* tiltyard-launcher: makes sandboxes for one host process.
 *
 * Theory of operation. The host starts this program early and once, because forking a large Python
 * process is slow and this one stays small. It takes requests on a SOCK_SEQPACKET socket that
 * it was started with, one message each, and answers each with one message; see `serve_request`. For a sandbox it
 * clones a child into new namespaces, writes its id maps, puts it into its cgroups, and hands back the
 * control socket and a pidfd without waiting: the child builds its own root (rootfs.c), goes on as
 * tiltyard-init (init.c) and says HELLO on the control socket, or says there which call failed.
 *
 * It owns what it made. When a sandbox is reaped its cgroups are removed, or left empty for another,
 * and only then is it reported as gone. When the host ends, the request socket ends, or, where a child of the host's still holds
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
#include <linux/securebits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "birth.h"
#include "frames.h"
#include "network.h"
#include "owned.h"
#include "rootfs.h"
#include "snapshots.h"
#include "spare.h"
#include "stage.h"

#define REQUEST_BYTES_MAX 65536
#define FDS_MAX 4 /* that go with a reply */

enum {
  REQUEST_IMAGE = 1,
  REQUEST_CREATE = 2,
  REQUEST_SNAPSHOT = 3, /* u32 number, string sandbox; answered when the copy is made */
  REQUEST_DROP = 4,     /* u32 number */
  REQUEST_COMPARE = 5,  /* string sandbox; with the file that takes what differs */
};
enum { CREATE_FOR_ZYGOTES = 1, CREATE_WRITABLE = 2 };
enum { REPLY_OK = 1, REPLY_FAILED = 2, REPLY_GONE = 3 };

static int requests;
static bool as_root;

static void reply(uint32_t kind, struct text id, int error, const char *step, const int *fds, int count) {
  struct body body = {.length = 0};
  char name[SANDBOX_ID_BYTES];
  snprintf(name, sizeof name, "%.*s", (int)id.length, id.bytes);
  put_u32(&body, kind);
  put_u32(&body, (uint32_t)error);
  put_text(&body, name);
  put_text(&body, step);
  struct iovec part = {.iov_base = body.bytes, .iov_len = body.length};
  union { char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))]; struct cmsghdr align; } control = {{0}};
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

static void fail(const char *step) {
  reply(REPLY_FAILED, (struct text){"launcher", 8}, errno, step, NULL, 0);
  exit(1);
}

static void create(struct fields *fields) {
  struct text id = field_text(fields);
  struct rootfs rootfs = {.image = field_u32(fields), .layer = -1};
  rootfs.snapshot = field_u32(fields);
  rootfs.disk_bytes = field_u64(fields);
  rootfs.inodes = field_u64(fields);
  uint32_t flags = field_u32(fields);
  rootfs.for_zygotes = flags & CREATE_FOR_ZYGOTES;
  rootfs.writable = flags & CREATE_WRITABLE;
  uint32_t first_id = field_u32(fields);
  rootfs.first_id = as_root ? first_id : 0;
  struct owned *owned = owned_add(id, fields);
  int fds[FDS_MAX];
  const char *failed = owned ? owned_make_cgroups(owned, fields) : "sandbox request";
  struct network network = field_network(fields);
  if (!failed && fields->bad) {
    errno = EINVAL;
    failed = "network request";
  }
  if (!failed) failed = snapshot_use(&rootfs);
  if (!failed) {
    owned->rootfs = rootfs;
    failed = rootfs_prepare(&owned->rootfs);
  }
  if (!failed) failed = birth(owned, &network, fds);
  if (owned) rootfs_close(&owned->rootfs);
  if (failed) {
    int error = errno;
    if (owned) owned_give_up(owned);
    network_close(&network);
    reply(REPLY_FAILED, id, error, failed, NULL, 0);
    return;
  }
  memcpy(fds + 2, network.fds, sizeof network.fds);
  reply(REPLY_OK, id, network.unshaped_error, network.unshaped ? network.unshaped : "", fds,
        network.mode == NETWORK_PROXY ? 4 : 2);
  close(fds[0]);
  close(fds[1]);
  network_close(&network);
}

static void answer_failure(struct text id, const char *failed) {
  if (failed) reply(REPLY_FAILED, id, errno, failed, NULL, 0);
}

static void drop(struct text id, uint32_t number) {
  const char *failed = snapshot_drop(number);
  reply(failed ? REPLY_FAILED : REPLY_OK, id, failed ? errno : 0, failed ? failed : "", NULL, 0);
}

/* What a worker does is answered at its end, by `told`. */
static const char *start_worker(uint32_t kind, struct text id, struct fields *fields, int attached) {
  uint32_t number = kind == REQUEST_SNAPSHOT ? field_u32(fields) : 0;
  struct text sandbox = field_text(fields);
  const struct owned *owned = fields->bad ? NULL : owned_find(sandbox);
  errno = ESRCH;
  if (!owned) return "sandbox";
  if (kind == REQUEST_SNAPSHOT) return snapshot_take(id, number, &owned->rootfs);
  errno = EBADF;
  return attached < 0 ? "descriptor" : differences_start(id, &owned->rootfs, attached);
}

static void told(struct text request, int error, const char *failed) {
  reply(failed ? REPLY_FAILED : REPLY_OK, request, error, failed ? failed : "", NULL, 0);
}

static void other_ended(pid_t pid, int status) { worker_ended(pid, status, told); }

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
  } else if (kind == REQUEST_DROP) {
    struct text id = field_text(&fields);
    drop(id, field_u32(&fields));
  } else if (kind == REQUEST_SNAPSHOT || kind == REQUEST_COMPARE) {
    struct text id = field_text(&fields);
    answer_failure(id, start_worker(kind, id, &fields, attached));
  } else {
    reply(REPLY_FAILED, (struct text){"", 0}, EINVAL, "request", NULL, 0);
  }
  if (attached >= 0) close(attached);
  return true;
}

/* With how many of its processes were killed for want of memory: the host cannot read that any more. */
static void tell_gone(const struct owned *owned, bool kept) {
  struct text id = {owned->id, (uint32_t)strlen(owned->id)};
  reply(REPLY_GONE, id, (int)owned->oom_kills, kept ? "kept" : "", NULL, 0);
}

/* Goes on as a sealed copy in memory: a sandbox's first process is a fork of this one, and no program
 * may reach the host's file through its /proc/PID/exe. */
static void run_from_memory(char **argv) {
  static char *const environment[] = {NULL};
  int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  struct stat about;
  if (file < 0 || fstat(file, &about)) fail("open(own program)");
  if (fcntl(file, F_GET_SEALS) > 0) {
    close(file);
    prctl(PR_SET_NAME, "tiltyard-launch", 0, 0, 0);
    return;
  }
  int copy = memfd_create("tiltyard-launcher", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (copy < 0) fail("memfd_create");
  for (off_t left = about.st_size; left > 0;) {
    ssize_t sent = sendfile(copy, file, NULL, (size_t)left);
    if (sent <= 0) fail("sendfile(own program)");
    left -= sent;
  }
  if (fcntl(copy, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL))
    fail("fcntl(F_ADD_SEALS)");
  syscall(SYS_execveat, copy, "", argv, environment, AT_EMPTY_PATH);
  fail("exec(own program)");
}

static void enter_own_namespaces(void) {
  uid_t uid = getuid();
  gid_t gid = getgid();
  if (unshare(as_root ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS)) fail("unshare(user, mount)");
  /* See clone_as: it makes namespaces as another user, with what root may do. */
  if (as_root && prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0)) fail("prctl(securebits)");
  if (as_root) return;
  char map[64];
  if (write_to("/proc/self/setgroups", "deny")) fail("write(setgroups)");
  snprintf(map, sizeof map, "0 %u 1", uid);
  if (write_to("/proc/self/uid_map", map)) fail("write(uid_map)");
  snprintf(map, sizeof map, "0 %u 1", gid);
  if (write_to("/proc/self/gid_map", map)) fail("write(gid_map)");
}

/* A child puts its own at 3 and after (child.c): what the launcher hands on to it must not be there. */
static void hold_low_descriptors(void) {
  int fd;
  do fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  while (fd >= 0 && fd < 10);
  close(fd);
  struct rlimit files; /* one of each sandbox is kept, for its layer */
  if (getrlimit(RLIMIT_NOFILE, &files)) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

/* What the launcher ignores every program of its sandboxes would ignore too, and whoever started the
 * host may have ignored any; the same for the worker's alarm (snapshots.c). A child may be killed before
 * it was told to go on: that is its loss, not the launcher's, and start.c undoes this one. */
static void take_no_signal_over(void) {
  /* By the system call: the C library refuses its own two signals, and its posix_spawn leaves one of
   * them ignored. */
  const struct { unsigned long handler, flags, restorer, mask; } by_default = {0};
  for (int number = 1; number < NSIG; number++)
    syscall(SYS_rt_sigaction, number, &by_default, NULL, sizeof by_default.mask);
  signal(SIGPIPE, SIG_IGN);
}

/* Serves until the host is gone. */
static void serve(int host, int signals) {
  for (bool open = true; open;) {
    struct pollfd polled[3] = {{.fd = requests, .events = POLLIN},
                               {.fd = signals, .events = POLLIN},
                               {.fd = host, .events = POLLIN}};
    int timeout_ms = owned_sweep(tell_gone, other_ended);
    int ready = poll(polled, 3, spare_wanted() ? 0 : timeout_ms);
    if (ready == 0 && spare_wanted()) spare_make();
    if (ready <= 0) continue;
    struct signalfd_siginfo caught;
    while (polled[1].revents && read(signals, &caught, sizeof caught) > 0) {
    }
    if (polled[2].revents) return;
    if (polled[0].revents) open = serve_request();
  }
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: tiltyard-launcher SOCKET HOST-PIDFD STAGE [CGROUP=CONTROLLERS...]\n");
    return 2;
  }
  requests = atoi(argv[1]);
  int host = atoi(argv[2]);
  run_from_memory(argv);
  fcntl(requests, F_SETFD, FD_CLOEXEC);
  fcntl(host, F_SETFD, FD_CLOEXEC);
  as_root = geteuid() == 0;
  umask(022);
  hold_low_descriptors();
  enter_own_namespaces();
  const char *failed = rootfs_set_up();
  if (!failed) failed = spare_set_up();
  if (!failed) failed = stage_set_up(argv[3]);
  if (failed) fail(failed);
  if ((failed = owned_set_up(argv + 4))) fail(failed);
  if (chdir("/")) fail("chdir");
  take_no_signal_over();
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
