/* See snapshots.h.
 *
 * Theory of operation. A snapshot is a tmpfs with a copy of one sandbox's layer, mounted read-only on
 * the stage, so that every later child has it at hand as a lower directory of its overlay. Owners in it
 * are the sandbox's own (0 is its root); each fork sees them shifted into its own range. The sandbox
 * may live on: the host stops its programs while the copy is made.
 *
 * Copying takes as long as there are files, so it is done by a worker, a fork of the launcher, which
 * dies with it and has a deadline. What a worker tells goes through a pipe; a worker that ends without a
 * word has failed.
 *
 * What a snapshot holds is counted in no sandbox's cgroup, so all of them together have a bound. Each
 * counts with what its tmpfs says that it holds, until the last fork that stands on it is gone; while it
 * is being made, with what its sandbox's own holds, and its tmpfs is no bigger than what is left.
 */
#include "snapshots.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "copytree.h"
#include "differences.h"
#include "memory.h"
#include "stage.h"

#define WORKER_S_MAX 60
#define REQUEST_ID_BYTES 64
#define WORKERS_MAX 64
#define INODE_BYTES 1024 /* of the kernel's memory, with its name: an empty file holds no more */
#define PAGE_BYTES 4096

struct snapshot {
  bool used, made, dropped;
  uint32_t below, image, users;
  bool writable;
  uint64_t bytes; /* that it holds, or will when it is made */
};

struct word {
  int error; /* 0: it went well */
  char failed[60];
};

struct worker {
  pid_t pid; /* 0: a free place */
  char request[REQUEST_ID_BYTES];
  int word;          /* the pipe; -1: none */
  uint32_t snapshot; /* that it makes; 0: none */
  int layer;         /* the mount that it fills; -1: none */
  bool squeezed;     /* that mount is smaller than the sandbox's own, for want of memory */
};

static struct snapshot snapshots[SNAPSHOTS_MAX + 1];
static struct worker workers[WORKERS_MAX];

static struct snapshot *find(uint32_t number) {
  return number && number <= SNAPSHOTS_MAX && snapshots[number].used ? &snapshots[number] : NULL;
}

uint32_t snapshot_below(uint32_t number) {
  const struct snapshot *snapshot = find(number);
  return snapshot ? snapshot->below : 0;
}

const char *snapshot_use(const struct rootfs *rootfs) {
  if (!rootfs->snapshot) return NULL;
  struct snapshot *snapshot = find(rootfs->snapshot);
  if (!snapshot || snapshot->dropped) {
    errno = ENOENT;
    return "snapshot";
  }
  if (snapshot->image != rootfs->image || snapshot->writable != rootfs->writable) {
    errno = EINVAL;
    return "snapshot of another image";
  }
  snapshot->users++;
  return NULL;
}

static void release(uint32_t number) {
  struct snapshot *snapshot = find(number);
  if (!snapshot || !snapshot->dropped || snapshot->users) return;
  umount2(staged("snapshot-%u", number), MNT_DETACH);
  rmdir(staged("snapshot-%u", number));
  uint32_t below = snapshot->below;
  *snapshot = (struct snapshot){.used = false};
  snapshot_unuse(below);
}

void snapshot_unuse(uint32_t number) {
  struct snapshot *snapshot = find(number);
  if (!snapshot || !snapshot->users) return;
  snapshot->users--;
  release(number);
}

const char *snapshot_drop(uint32_t number) {
  struct snapshot *snapshot = find(number);
  if (!snapshot || snapshot->dropped) {
    errno = snapshot && !snapshot->made ? EBUSY : ENOENT;
    return "snapshot";
  }
  snapshot->dropped = true;
  release(number);
  return NULL;
}

static const char *copy_layers(const struct rootfs *of, int layer) {
  for (int i = 0; i < of->overlay_count; i++) {
    const char *name = of->overlays[i].upper;
    int from = openat(of->layer, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (from < 0) return "open(layer)";
    struct stat about;
    if (fstat(from, &about) || mkdirat(layer, name, about.st_mode & 07777)) return "mkdir(snapshot)";
    int to = openat(layer, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (to < 0) return "open(snapshot)";
    const char *failed = copy_tree(from, to, of->first_id);
    int error = errno;
    close(from);
    close(to);
    errno = error;
    if (failed) return failed;
  }
  return NULL;
}

static void work(const struct rootfs *of, int layer, int into, int word) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(WORKER_S_MAX);
  struct rlimit files;
  if (!getrlimit(RLIMIT_NOFILE, &files)) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  umask(0);
  const char *failed = layer >= 0 ? copy_layers(of, layer) : differences_write(of, into);
  struct word said = {.error = failed ? errno : 0};
  if (failed) snprintf(said.failed, sizeof said.failed, "%s", failed);
  if (failed && !said.error) said.error = EIO;
  _exit(write(word, &said, sizeof said) == sizeof said ? 0 : 1);
}

static struct worker *free_worker(struct text request) {
  if (request.length >= REQUEST_ID_BYTES) return NULL;
  for (int i = 0; i < WORKERS_MAX; i++) {
    if (workers[i].pid) continue;
    workers[i] = (struct worker){.word = -1, .layer = -1};
    memcpy(workers[i].request, request.bytes, request.length);
    return &workers[i];
  }
  return NULL;
}

static const char *start(struct worker *worker, const struct rootfs *of, int into) {
  int word[2];
  if (pipe2(word, O_CLOEXEC | O_NONBLOCK)) return "pipe";
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) work(of, worker->layer, into, word[1]);
  int error = errno;
  close(word[1]);
  if (pid < 0) close(word[0]);
  errno = error;
  if (pid < 0) return "fork";
  worker->pid = pid;
  worker->word = word[0];
  return NULL;
}

const char *differences_start(struct text request, const struct rootfs *of, int into) {
  struct worker *worker = free_worker(request);
  if (!worker) {
    errno = EAGAIN;
    return "workers at once";
  }
  return start(worker, of, into);
}

static uint64_t bytes_max(void) {
  static uint64_t bytes;
  if (!bytes) bytes = memory_bytes_here() / SNAPSHOTS_MEMORY_PART;
  return bytes;
}

static uint64_t bytes_left(void) {
  uint64_t held = 0;
  for (int number = 1; number <= SNAPSHOTS_MAX; number++)
    if (snapshots[number].used) held += snapshots[number].bytes;
  return held < bytes_max() ? bytes_max() - held : 0;
}

static uint64_t bytes_in(int layer) {
  struct statfs about;
  if (fstatfs(layer, &about)) return bytes_max(); /* the worst that it could be */
  return (about.f_blocks - about.f_bfree) * (uint64_t)about.f_bsize +
         (about.f_files - about.f_ffree) * INODE_BYTES;
}

static const char *too_much(void) {
  static char step[60];
  snprintf(step, sizeof step, "memory for snapshots (%llu MiB)", (unsigned long long)bytes_max() >> 20);
  errno = ENOMEM;
  return step;
}

static uint32_t chain_length(uint32_t number) {
  uint32_t length = 0;
  for (; number; number = snapshot_below(number)) length++;
  return length;
}

const char *snapshot_take(struct text request, uint32_t number, const struct rootfs *of) {
  struct worker *worker = free_worker(request);
  if (!worker || number == 0 || number > SNAPSHOTS_MAX || snapshots[number].used) {
    errno = worker ? EINVAL : EAGAIN;
    return worker ? "snapshot number" : "workers at once";
  }
  if (chain_length(of->snapshot) >= SNAPSHOT_CHAIN_MAX) {
    errno = E2BIG;
    return "snapshots of snapshots";
  }
  uint64_t left = bytes_left(), expected = bytes_in(of->layer);
  if (left < PAGE_BYTES) return too_much(); /* and a tmpfs of no bytes would have no bound */
  worker->squeezed = left < of->disk_bytes;
  worker->layer = layer_make(worker->squeezed ? left : of->disk_bytes, of->inodes, 0);
  if (worker->layer < 0) return "mount(tmpfs)";
  const char *failed = start(worker, of, -1);
  if (failed) {
    int error = errno;
    close(worker->layer);
    errno = error;
    return failed;
  }
  worker->snapshot = number;
  snapshots[number] = (struct snapshot){.used = true, .dropped = true, .image = of->image, .users = 1,
                                        .writable = of->writable, .below = of->snapshot,
                                        .bytes = expected < left ? expected : left};
  if (of->snapshot) snapshots[of->snapshot].users++;
  return NULL;
}

/* Puts what a worker filled where children find it, or lets it go. */
static const char *settle(const struct worker *worker, const char *failed) {
  struct snapshot *snapshot = &snapshots[worker->snapshot];
  const char *place = staged("snapshot-%u", worker->snapshot);
  struct mount_attr attributes = {.attr_set = MOUNT_ATTR_RDONLY};
  if (failed && errno == ENOSPC && worker->squeezed) failed = too_much();
  snapshot->bytes = 0;
  uint64_t bytes = bytes_in(worker->layer);
  if (!failed && bytes > bytes_left()) failed = too_much();
  snapshot->bytes = bytes;
  if (!failed && mkdir(place, 0755)) failed = "mkdir(snapshot)";
  if (!failed &&
      syscall(SYS_mount_setattr, worker->layer, "", AT_EMPTY_PATH, &attributes, sizeof attributes))
    failed = "mount_setattr(snapshot)";
  if (!failed && syscall(SYS_move_mount, worker->layer, "", AT_FDCWD, place, MOVE_MOUNT_F_EMPTY_PATH))
    failed = "move_mount(snapshot)";
  snapshot->users = 0;
  snapshot->made = true;
  snapshot->dropped = failed != NULL;
  int error = errno;
  release(worker->snapshot);
  close(worker->layer);
  errno = error;
  return failed;
}

bool worker_ended(pid_t pid, int status, worker_told *tell) {
  for (int i = 0; i < WORKERS_MAX; i++) {
    struct worker *worker = &workers[i];
    if (worker->pid != pid) continue;
    struct word word = {.error = ETIMEDOUT, .failed = "worker"};
    bool said = read(worker->word, &word, sizeof word) == sizeof word;
    close(worker->word);
    word.failed[sizeof word.failed - 1] = 0;
    bool well = said && !word.error && status == 0;
    const char *failed = well ? NULL : word.failed;
    errno = word.error;
    if (worker->snapshot) failed = settle(worker, failed);
    tell((struct text){worker->request, (uint32_t)strlen(worker->request)}, failed ? errno : 0, failed);
    worker->pid = 0;
    return true;
  }
  return false;
}
