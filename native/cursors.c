/* Theory of operation
 *
 * The supervisor is one thread that also keeps the deadlines of programs, so no request may keep it for
 * long. A directory may hold a hundred thousand names, and a tree may be made to grow while it is
 * walked. Such a request therefore does a slice at a time: SLICE_RECORDS_MAX names, SLICE_BYTES_MAX of
 * an answer or SLICE_US, whichever is first. Its place is kept in a cursor, and it is the host that
 * asks for each further slice. So back-pressure comes for free (nothing is read before the host has
 * room), the memory held is one slice, and a host that loses interest just stops asking.
 *
 * A worker process beside the supervisor was rejected: programs could stop or kill it (only pid 1 is
 * out of their reach), it could not be forked when the sandbox's processes are used up, and the
 * kill(-1) of a timeout would take it along.
 *
 * One system call is the smallest step. The longest ones (freeing a big file, the first read of a huge
 * directory that is merged from two layers, copying a big file up from the image) are bounded by the
 * sandbox's disk.
 *
 * Names change under a walk. It never follows a link, never crosses a mount point, and looks at what
 * it has opened. A directory that is moved away meanwhile is walked to its end wherever it is, which
 * is still inside. What vanishes is passed over; what only grows ends at the host's limits.
 */
#include "cursors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "executions.h"
#include "plant.h"

#define SLICE_US 4000
#define TRIES 8
#define LIFTED_TRIES 16

struct slice {
  uint8_t *bytes;
  size_t used;
  uint32_t count;
  const char *call; /* what fails, when it does */
};

static struct cursor cursors[CURSORS_MAX];

void cursor_end(struct cursor *cursor) {
  if (cursor->task == TASK_NONE) return;
  walk_end(&cursor->walk);
  close_fd(&cursor->base);
  close_fd(&cursor->file);
  cursor->task = TASK_NONE;
}

struct cursor *cursor_begin(uint32_t number, enum task task) {
  if (number >= CURSORS_MAX) return NULL;
  struct cursor *cursor = &cursors[number];
  cursor_end(cursor);
  cursor->task = task;
  cursor->base = cursor->file = -1;
  cursor->left = cursor->removed = 0;
  cursor->lifted = 0;
  walk_end(&cursor->walk);
  return cursor;
}

struct cursor *cursor_of(uint32_t number, enum task task) {
  return number < CURSORS_MAX && cursors[number].task == task ? &cursors[number] : NULL;
}

static void put_bytes(struct slice *slice, const void *bytes, size_t length) {
  memcpy(slice->bytes + slice->used, bytes, length);
  slice->used += length;
}

static size_t room(const struct slice *slice) { return SLICE_BYTES_MAX - slice->used; }

/* One name of a directory. 1: go on, 0: that was all, -1: errno. The caller has made sure of room. */
static int list_step(struct cursor *cursor, struct slice *slice) {
  struct stat about;
  const char *name = walk_next(&cursor->walk);
  if (!name) return errno ? -1 : 0;
  if (fstatat(walk_directory(&cursor->walk), name, &about, AT_SYMLINK_NOFOLLOW)) return 1;
  struct body body = {.length = 0};
  put_u32(&body, about.st_mode);
  put_u64(&body, (uint64_t)about.st_size);
  put_u32(&body, (uint32_t)strlen(name));
  put_bytes(slice, body.bytes, body.length);
  put_bytes(slice, name, strlen(name));
  slice->count++;
  return 1;
}

static void put_head(struct slice *slice, uint32_t kind, const struct stat *about, const char *path,
                     const char *target, size_t target_length) {
  struct body body = {.length = 0};
  put_u32(&body, kind);
  put_u32(&body, about->st_mode & 07777);
  put_u64(&body, kind == RECORD_FILE ? (uint64_t)about->st_size : 0);
  put_u64(&body, (uint64_t)about->st_mtim.tv_sec);
  put_u32(&body, (uint32_t)strlen(path));
  put_bytes(slice, body.bytes, body.length);
  put_bytes(slice, path, strlen(path));
  struct body length = {.length = 0};
  put_u32(&length, (uint32_t)target_length);
  put_bytes(slice, length.bytes, length.length);
  put_bytes(slice, target, target_length);
  slice->count++;
}

static int read_directory(struct cursor *cursor, struct slice *slice, int fd) {
  struct stat about;
  slice->call = "open";
  if (fstat(fd, &about)) {
    close(fd);
    return -1;
  }
  put_head(slice, RECORD_DIRECTORY, &about, cursor->walk.path, "", 0);
  slice->call = "directories too deep";
  return walk_enter(&cursor->walk, fd) ? -1 : 1;
}

static int read_file(struct cursor *cursor, struct slice *slice, int fd) {
  struct stat about;
  slice->call = "open";
  if (fstat(fd, &about)) {
    close(fd);
    return -1;
  }
  put_head(slice, RECORD_FILE, &about, cursor->walk.path, "", 0);
  cursor->file = fd;
  cursor->left = (uint64_t)about.st_size;
  if (cursor->left == 0) close_fd(&cursor->file);
  return 1;
}

/* Tells of the entry at hand, as what it is when it is opened. */
static int read_entry(struct cursor *cursor, struct slice *slice, const char *name) {
  int directory = walk_directory(&cursor->walk);
  struct stat about;
  for (int tries = 0; tries < TRIES; tries++) {
    if (fstatat(directory, name, &about, AT_SYMLINK_NOFOLLOW)) return 1; /* it vanished */
    if (S_ISLNK(about.st_mode)) {
      char target[PATH_BYTES_MAX];
      ssize_t length = readlinkat(directory, name, target, sizeof target);
      if (length < 0) continue;
      put_head(slice, RECORD_LINK, &about, cursor->walk.path, target, (size_t)length);
      return 1;
    }
    if (!S_ISDIR(about.st_mode) && !S_ISREG(about.st_mode)) break;
    int fd = S_ISDIR(about.st_mode) ? below_open(directory, name, O_RDONLY | O_DIRECTORY, 0, false)
                                    : below_open_regular(directory, name, O_RDONLY, 0, false);
    if (fd >= 0)
      return S_ISDIR(about.st_mode) ? read_directory(cursor, slice, fd) : read_file(cursor, slice, fd);
    if (errno == EXDEV) break;
    if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP && errno != EINVAL && errno != ENXIO) {
      slice->call = "open";
      return -1;
    }
  }
  put_head(slice, RECORD_SPECIAL, &about, cursor->walk.path, "", 0);
  return 1;
}

static int read_content(struct cursor *cursor, struct slice *slice) {
  size_t wanted = room(slice) - 8;
  if (wanted > cursor->left) wanted = (size_t)cursor->left;
  ssize_t got = read(cursor->file, slice->bytes + slice->used + 8, wanted);
  if (got <= 0) {
    slice->call = got < 0 ? "read" : "it shrank while it was read";
    if (got == 0) errno = EAGAIN;
    return -1;
  }
  struct body body = {.length = 0};
  put_u32(&body, RECORD_BYTES);
  put_u32(&body, (uint32_t)got);
  put_bytes(slice, body.bytes, body.length);
  slice->used += (size_t)got;
  slice->count++;
  cursor->left -= (uint64_t)got;
  if (cursor->left == 0) close_fd(&cursor->file);
  return 1;
}

static int read_step(struct cursor *cursor, struct slice *slice) {
  if (cursor->file >= 0) return read_content(cursor, slice);
  slice->call = "list";
  const char *name = walk_next(&cursor->walk);
  if (!name) {
    if (errno) return -1;
    walk_leave(&cursor->walk);
    return cursor->walk.depth > 0;
  }
  if (cursor->walk.path_length >= PATH_BYTES_MAX) {
    errno = ENAMETOOLONG;
    return -1;
  }
  return read_entry(cursor, slice, name);
}

/* A directory too deep to be walked is moved to the top of the tree that is being removed, where the
 * walk will come by again. So a tree of any depth goes with bounded descriptors. */
static int lift(struct cursor *cursor, int directory, const char *name) {
  for (int tries = 0; tries < LIFTED_TRIES; tries++) {
    char lifted[32];
    snprintf(lifted, sizeof lifted, ".tiltyard-removed-%u", cursor->lifted++);
    if (!renameat2(directory, name, cursor->walk.levels[0]->fd, lifted, RENAME_NOREPLACE)) return 1;
    if (errno == ENOENT) return 1;
    if (errno != EEXIST) return -1;
  }
  return -1;
}

/* 0: it is gone, 1: not yet, -1: errno. */
static int remove_entry(struct cursor *cursor, int directory, const char *name) {
  bool first = cursor->walk.depth == 0 && cursor->removed == 0;
  for (int kind = 0; kind < 2; kind++) {
    if (!unlinkat(directory, name, kind ? AT_REMOVEDIR : 0)) {
      cursor->removed++;
      return 0;
    }
    if (errno == ENOENT && !first) return 0;
    if (!kind && errno != EISDIR) return -1;
  }
  if (errno == ENOTDIR) return 1; /* a file took its place in between */
  if ((errno != ENOTEMPTY && errno != EEXIST) || !cursor->recursive) return -1;
  if (cursor->walk.depth == WALK_DEPTH_MAX) return lift(cursor, directory, name);
  int fd = below_open(directory, name, O_RDONLY | O_DIRECTORY, 0, false);
  if (fd < 0) return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 1 : -1;
  return walk_enter(&cursor->walk, fd) ? -1 : 1;
}

/* One name: down into a directory, or removed. A directory into which a program put something
 * meanwhile is entered again. */
static int remove_step(struct cursor *cursor, struct slice *slice) {
  slice->call = "remove";
  slice->count++;
  if (cursor->walk.depth) {
    const char *name = walk_next(&cursor->walk);
    if (name) return remove_entry(cursor, walk_directory(&cursor->walk), name) < 0 ? -1 : 1;
    if (errno) return -1;
    walk_leave(&cursor->walk);
  }
  bool top = cursor->walk.depth == 0;
  int left = top ? remove_entry(cursor, cursor->base, cursor->name)
                 : remove_entry(cursor, walk_directory(&cursor->walk), walk_name(&cursor->walk));
  return left < 0 ? -1 : left == 0 && top ? 0 : 1;
}

static int step(struct cursor *cursor, struct slice *slice) {
  switch (cursor->task) {
    case TASK_LIST: slice->call = "list"; return list_step(cursor, slice);
    case TASK_READ: return read_step(cursor, slice);
    case TASK_REMOVE: return remove_step(cursor, slice);
    default: errno = EINVAL; return -1;
  }
}

/* Room for the largest step but content, which takes what there is: a link's path and target. */
#define STEP_BYTES_MAX (2u * PATH_BYTES_MAX + 64u)

static void answer_slice(struct outbox *outbox, uint32_t id, struct cursor *cursor) {
  struct slice slice = {.bytes = malloc(SLICE_BYTES_MAX), .call = "memory"};
  uint64_t until = now_us() + SLICE_US;
  int more = slice.bytes ? 1 : -1;
  while (more > 0 && slice.count < SLICE_RECORDS_MAX && room(&slice) >= STEP_BYTES_MAX) {
    more = step(cursor, &slice);
    if (now_us() >= until) break;
  }
  struct body body = {.length = 0};
  put_u32(&body, more > 0);
  if (more < 0) {
    answer_error(outbox, id, errno, slice.call, cursor->walk.path);
  } else if (cursor->task == TASK_REMOVE) {
    put_u64(&body, cursor->removed);
    outbox_frame(outbox, FRAME_REMOVED, 0, id, body.bytes, body.length);
  } else {
    if (cursor->task == TASK_LIST) put_u32(&body, slice.count);
    outbox_frame2(outbox, cursor->task == TASK_LIST ? FRAME_ENTRIES : FRAME_RECORDS, 0, id, body.bytes,
                  body.length, slice.bytes, slice.used);
  }
  if (more <= 0) cursor_end(cursor);
  free(slice.bytes);
}

/* Opens what a walk starts from; in /proc and /sys only names are to be had. */
static bool start_walk(struct cursor *cursor, const char *path) {
  int fd = inside_open(path, O_RDONLY | O_DIRECTORY, 0);
  if (fd < 0) return false;
  if (cursor->task == TASK_READ && is_unreal(fd)) {
    close(fd);
    errno = EINVAL;
    return false;
  }
  return walk_enter(&cursor->walk, fd) == 0;
}

static bool start_removal(struct cursor *cursor, const char *path, bool recursive) {
  const char *name;
  cursor->recursive = recursive;
  cursor->base = inside_open_parent(path, &name);
  if (cursor->base < 0) return false;
  if (strlen(name) >= sizeof cursor->name) {
    errno = ENAMETOOLONG;
    return false;
  }
  memcpy(cursor->name, name, strlen(name) + 1);
  return true;
}

static void begin(struct outbox *outbox, const struct frame *frame, enum task task) {
  struct fields fields = fields_of(frame);
  char path[PATH_BYTES_MAX];
  uint32_t number = field_u32(&fields);
  uint32_t recursive = task == TASK_REMOVE ? field_u32(&fields) : 0;
  bool good = field_path(&fields, path);
  struct cursor *cursor = cursor_begin(number, task);
  if (!good || !cursor) {
    answer_error(outbox, frame->id, EINVAL, "path", NULL);
    if (cursor) cursor_end(cursor);
  } else if (!(task == TASK_REMOVE ? start_removal(cursor, path, recursive)
                                   : start_walk(cursor, path))) {
    answer_error(outbox, frame->id, errno, task == TASK_REMOVE ? "remove" : "list", NULL);
    cursor_end(cursor);
  } else {
    answer_slice(outbox, frame->id, cursor);
  }
}

static void go_on(struct outbox *outbox, const struct frame *frame) {
  struct fields fields = fields_of(frame);
  uint32_t number = field_u32(&fields);
  enum task task = number < CURSORS_MAX ? cursors[number].task : TASK_NONE;
  if (fields.bad || task == TASK_NONE || task == TASK_WRITE)
    answer_error(outbox, frame->id, EINVAL, "cursor", NULL);
  else
    answer_slice(outbox, frame->id, &cursors[number]);
}

bool cursors_answer(struct outbox *outbox, const struct frame *frame) {
  struct fields fields = fields_of(frame);
  switch (frame->type) {
    case FRAME_LIST: begin(outbox, frame, TASK_LIST); return true;
    case FRAME_REMOVE: begin(outbox, frame, TASK_REMOVE); return true;
    case FRAME_TREE_READ: begin(outbox, frame, TASK_READ); return true;
    case FRAME_TREE_WRITE: plant_begin(outbox, frame); return true;
    case FRAME_TREE_PUT: plant_more(outbox, frame); return true;
    case FRAME_MORE: go_on(outbox, frame); return true;
    case FRAME_END: {
      uint32_t number = field_u32(&fields);
      if (!fields.bad && number < CURSORS_MAX) cursor_end(&cursors[number]);
      return true;
    }
    default: return false;
  }
}
