/* Calls that reach other processes, the host or the kernel's own state: answered, never done. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <poll.h>
#include <sanitizer/asan_interface.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "seam_world.h"

#define FIRST_PID 1000
#define PIECE_BYTES_MAX 255
#define SLEEPS_MAX 20

int seam_openat2(int from, const char *path, const struct open_how *how);

/* Nearly always well; otherwise as a full or strict kernel would. */
static bool refused(void) {
  if (seam_choice(32) != 31) return false;
  errno = seam_choice(2) ? ENOMEM : EPERM;
  return true;
}

/* The four plain answers of seam.txt. */
long seam_done(void) { return refused() ? -1 : 0; }

long seam_refuse(void) {
  errno = EPERM;
  return -1;
}

long seam_nothing(void) { return 0; }

long seam_end(void) { seam_exit(0); }

pid_t seam_start(void) {
  if (refused()) return -1;
  if (world.processes == PROCESSES_MAX) {
    errno = EAGAIN;
    return -1;
  }
  return FIRST_PID + world.processes++;
}

/* Now and then the run goes on as the child, which ends where it would become another program. */
pid_t seam_fork(void) { return seam_choice(16) == 9 ? 0 : seam_start(); }

int seam_dup2(int fd, int as) {
  (void)fd;
  return as;
}

int seam_kill(pid_t pid, int signal) {
  if (signal == 0) return 0;
  for (int i = 0; i < world.processes; i++)
    if (pid == -1 || pid == FIRST_PID + i || -pid == FIRST_PID + i) world.dead[i] = true;
  return 0;
}

/* Who was killed, in order, and now and then who ended by itself. */
pid_t seam_wait4(pid_t pid, int *status, int options, struct rusage *usage) {
  (void)options;
  static const int statuses[] = {0, SIGKILL, 1 << 8, 0x7f, -1, 255 << 8};
  if (world.reaped == world.processes) {
    errno = ECHILD;
    return pid > 0 ? pid : -1;
  }
  if (!world.dead[world.reaped] && seam_choice(4) != 1) return 0;
  if (status) *status = statuses[seam_choice(sizeof statuses / sizeof *statuses)];
  if (usage) memset(usage, (int)seam_choice(256), sizeof *usage);
  return FIRST_PID + world.reaped++;
}

pid_t seam_waitpid(pid_t pid, int *status, int options) {
  return seam_wait4(pid, status, options, NULL);
}

int seam_waitid(idtype_t type, id_t id, siginfo_t *found, int options) {
  (void)type, (void)id, (void)options;
  memset(found, 0, sizeof *found);
  if (world.reaped == world.processes) {
    errno = ECHILD;
    return -1;
  }
  if (world.dead[world.reaped]) found->si_pid = FIRST_PID + world.reaped;
  return 0;
}

static size_t from_world(void *buffer, size_t size) {
  size_t count = seam_choice(PIECE_BYTES_MAX + 1);
  size_t there = (size_t)(world.input.world_end - world.input.world);
  if (count > size) count = size;
  if (count > there) count = there;
  if (count) memcpy(buffer, world.input.world, count);
  world.input.world += count;
  return count;
}

/* What comes from a program, a child or a file of the kernel's: anything. */
ssize_t seam_read(int fd, void *buffer, size_t size) {
  struct stat about;
  if (fstat(fd, &about)) return -1;
  if (S_ISREG(about.st_mode) && !seam_choice(4)) return read(fd, buffer, size);
  if (world.input.world == world.input.world_end) {
    errno = EAGAIN;
    return -1;
  }
  return (ssize_t)from_world(buffer, size);
}

/* Of a buffer that was offered, only what was received may be read; without this, reading past a
 * message's end would stay unseen, because the buffer is so much larger. */
static void received(void *buffer, size_t size, size_t count) {
  ASAN_POISON_MEMORY_REGION((char *)buffer + count, size - count);
}

static size_t from_stream(void *buffer, size_t size) {
  ASAN_UNPOISON_MEMORY_REGION(buffer, size);
  size_t count = (size_t)(world.input.stream_end - world.input.stream);
  uint32_t piece = seam_choice(256); /* 0: all that there is */
  if (piece && piece < count) count = piece;
  if (count > size) count = size;
  if (count) memcpy(buffer, world.input.stream, count);
  world.input.stream += count;
  received(buffer, size, count);
  return count;
}

ssize_t seam_recv(int fd, void *buffer, size_t size, int flags) {
  (void)flags;
  if (seam_is_connection(fd)) return (ssize_t)from_stream(buffer, size);
  if (world.input.world == world.input.world_end) {
    errno = EAGAIN;
    return -1;
  }
  /* A message of the zygote's: whole, as sent by trusted code, or not at all. */
  size_t there = (size_t)(world.input.world_end - world.input.world);
  if (size > there) return 0;
  memcpy(buffer, world.input.world, size);
  world.input.world += size;
  return (ssize_t)size;
}

/* One message of the launcher's host: u8 flags, u16 length, bytes; with flag 1 a file is attached,
 * u16 length, bytes. */
ssize_t seam_recvmsg(int fd, struct msghdr *message, int flags) {
  (void)fd, (void)flags;
  uint8_t header[3], more[2];
  struct seam_input *input = &world.input;
  if (input->stream_end - input->stream < 3) return 0;
  memcpy(header, input->stream, 3);
  input->stream += 3;
  size_t there = (size_t)(input->stream_end - input->stream);
  size_t length = (size_t)header[1] | (size_t)header[2] << 8, room = message->msg_iov->iov_len;
  if (length > there) length = there;
  size_t taken = length < room ? length : room;
  world.offered = message->msg_iov->iov_base;
  world.offered_bytes = room;
  ASAN_UNPOISON_MEMORY_REGION(world.offered, room);
  memcpy(message->msg_iov->iov_base, input->stream, taken);
  input->stream += length;
  received(world.offered, room, taken);
  message->msg_flags = taken < length ? MSG_TRUNC : 0;
  size_t control = message->msg_controllen;
  message->msg_controllen = 0;
  if (header[0] & 1 && input->stream_end - input->stream >= 2 && control >= CMSG_SPACE(sizeof fd)) {
    memcpy(more, input->stream, 2);
    input->stream += 2;
    there = (size_t)(input->stream_end - input->stream);
    size_t attached = (size_t)more[0] | (size_t)more[1] << 8;
    if (attached > there) attached = there;
    int file = memfd_create("attached", MFD_CLOEXEC);
    if (file < 0 || write(file, input->stream, attached) < 0) seam_fail("cannot attach a file");
    input->stream += attached;
    message->msg_controllen = CMSG_SPACE(sizeof file);
    struct cmsghdr *rights = CMSG_FIRSTHDR(message);
    *rights = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
                               .cmsg_len = CMSG_LEN(sizeof file)};
    memcpy(CMSG_DATA(rights), &file, sizeof file);
  }
  return (ssize_t)taken;
}

ssize_t seam_fgetxattr(int fd, const char *name, void *value, size_t size) {
  (void)fd, (void)name;
  if (world.input.world != world.input.world_end) return (ssize_t)from_world(value, size);
  errno = ENODATA;
  return -1;
}
ssize_t seam_getxattr(const char *path, const char *name, void *value, size_t size) {
  (void)path;
  return seam_fgetxattr(-1, name, value, size);
}
ssize_t seam_lgetxattr(const char *path, const char *name, void *value, size_t size) {
  return seam_getxattr(path, name, value, size);
}

/* Frames that go out must be whole: anything else would put the host out of step. */
static void follow_frames(const uint8_t *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (world.sent < FRAME_HEADER_BYTES) world.header[world.sent] = bytes[i];
    world.sent++;
    if (world.sent == FRAME_HEADER_BYTES) {
      memcpy(&world.frame_bytes, world.header, 4);
      if (world.frame_bytes > FRAME_BODY_BYTES_MAX || world.header[4] < 64 || world.header[6] ||
          world.header[7])
        seam_fail("a frame that no host accepts");
    }
    if (world.sent == FRAME_HEADER_BYTES) {
      size_t skip = count - i - 1 < world.frame_bytes ? count - i - 1 : world.frame_bytes;
      world.sent += skip;
      i += skip;
    } else if (world.sent > FRAME_HEADER_BYTES) {
      size_t missing = FRAME_HEADER_BYTES + world.frame_bytes - (size_t)world.sent;
      size_t skip = count - i - 1 < missing ? count - i - 1 : missing;
      world.sent += skip;
      i += skip;
    }
    if (world.sent == (uint64_t)FRAME_HEADER_BYTES + world.frame_bytes &&
        world.sent >= FRAME_HEADER_BYTES)
      world.sent = world.frame_bytes = 0;
  }
}

ssize_t seam_send(int fd, const void *bytes, size_t size, int flags) {
  (void)flags;
  uint32_t piece = seam_choice(8);
  if (piece == 7) {
    errno = seam_choice(4) == 3 ? EPIPE : EAGAIN;
    return -1;
  }
  if (piece && size > piece) size = piece;
  if (seam_is_connection(fd)) follow_frames(bytes, size);
  return (ssize_t)size;
}

ssize_t seam_sendmsg(int fd, const struct msghdr *message, int flags) {
  (void)fd, (void)flags;
  if (refused()) return -1;
  ssize_t sum = 0;
  for (size_t i = 0; i < message->msg_iovlen; i++) sum += (ssize_t)message->msg_iov[i].iov_len;
  return sum;
}

ssize_t seam_write(int fd, const void *bytes, size_t size) {
  struct stat about;
  if (fd < 3 || fstat(fd, &about)) {
    errno = EBADF;
    return -1;
  }
  if (refused()) return -1;
  return S_ISREG(about.st_mode) ? write(fd, bytes, size) : (ssize_t)size;
}

int seam_poll(struct pollfd *set, nfds_t count, int timeout_ms) {
  (void)timeout_ms;
  int ready = 0;
  for (nfds_t i = 0; i < count; i++) {
    static const short happened[] = {0, POLLIN | POLLOUT, POLLIN | POLLHUP, 0, POLLERR, 0, 0, POLLOUT};
    short events = seam_is_connection(set[i].fd)
                       ? POLLIN
                       : happened[seam_choice(sizeof happened / sizeof *happened)];
    set[i].revents = events & (short)(set[i].events | POLLHUP | POLLERR);
    ready += set[i].revents != 0;
  }
  if (!ready && ++world.sleeps > SLEEPS_MAX) seam_exit(0); /* it would wait for ever */
  return ready;
}

int seam_signalfd(int fd, const sigset_t *set, int flags) {
  (void)fd, (void)set, (void)flags;
  return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

int seam_clock_gettime(clockid_t clock, struct timespec *now) {
  (void)clock;
  world.now_us += seam_choice(256) * 1000u + 1;
  *now = (struct timespec){.tv_sec = (time_t)(world.now_us / 1000000),
                           .tv_nsec = (long)(world.now_us % 1000000) * 1000};
  return 0;
}

/* Time passes, but nothing comes of waiting for long. */
int seam_nanosleep(const struct timespec *time, struct timespec *left) {
  (void)left;
  world.now_us += (uint64_t)time->tv_sec * 1000000u + (uint64_t)time->tv_nsec / 1000u;
  if (++world.sleeps > SLEEPS_MAX) seam_exit(0);
  return 0;
}

/* The same each time, so that an input means the same. */
ssize_t seam_getrandom(void *buffer, size_t size, unsigned flags) {
  (void)flags;
  memset(buffer, (int)seam_choice(256), size);
  return (ssize_t)size;
}

uid_t seam_geteuid(void) { return seam_choice(2) ? 1000 : 0; }

int seam_close(int fd) {
  if (fd < 3 || fd == world.root) seam_fail("a descriptor of somebody else's is closed");
  return close(fd);
}

/* Not variadic: what was not given is then a register's old value, and no reading of the stack. */
long seam_syscall(long number, long first, long second, long third) {
  switch (number) {
    case SYS_openat2:
      return seam_openat2((int)first, (const char *)second, (const struct open_how *)third);
    case SYS_clone3: {
      pid_t pid = seam_fork();
      struct clone_args *asked = (struct clone_args *)first;
      if (pid >= 0 && asked->flags & CLONE_PIDFD) *(int *)asked->pidfd = eventfd(0, EFD_CLOEXEC);
      return pid;
    }
    case SYS_open_tree:
    case SYS_fsopen:
    case SYS_fsmount:
    case SYS_landlock_create_ruleset:
    case SYS_pidfd_open: return refused() ? -1 : eventfd(0, EFD_CLOEXEC);
    case SYS_execveat: return seam_end();
    default: return seam_done();
  }
}
