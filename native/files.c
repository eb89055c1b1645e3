/* Requests about one file or directory, each answered at once. How paths are held inside the sandbox
 * is in inside.c; what may take long is in cursors.c and plant.c. */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cursors.h"
#include "inside.h"

bool files_set_up(void) {
  int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) return false;
  inside_set_up(root);
  umask(0); /* modes are what the host asked for; programs get an umask of their own */
  return true;
}

static void answer(struct outbox *outbox, uint32_t id, bool done, const char *call) {
  if (done)
    outbox_frame(outbox, FRAME_DONE, 0, id, NULL, 0);
  else
    answer_error(outbox, id, errno, call, NULL);
}

/* Closes, and leaves errno as it was. */
static void drop(int fd) {
  int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
}

/* Made only after it was not found: the kernel may refuse O_CREAT on a file of another user in a
 * directory like /tmp (protected_regular), even to root. */
static int open_to_write(const char *path, uint64_t flags, mode_t mode, const char **call) {
  int fd = inside_open_regular(path, O_WRONLY | flags, 0, call);
  if (fd >= 0 || errno != ENOENT) return fd;
  if (inside_make_parents(path)) {
    *call = "mkdir";
    return -1;
  }
  return inside_open_regular(path, O_WRONLY | O_CREAT | flags, mode, call);
}

static void file_write(struct outbox *outbox, const struct frame *frame) {
  struct fields fields = fields_of(frame);
  char path[PATH_BYTES_MAX];
  uint32_t mode = field_u32(&fields), append = field_u32(&fields);
  field_path(&fields, path);
  struct text bytes = field_text(&fields);
  const char *call = "path";
  int fd = -1;
  errno = EINVAL;
  if (!fields.bad) fd = open_to_write(path, append ? O_APPEND : 0, mode, &call);
  bool done = fd >= 0;
  /* Truncated only after it is known to be regular. */
  if (done && !append && (ftruncate(fd, 0) || fchmod(fd, mode & 0777))) {
    done = false;
    call = "truncate";
  }
  for (uint32_t at = 0; done && at < bytes.length;) {
    ssize_t wrote = write(fd, bytes.bytes + at, bytes.length - at);
    if (wrote <= 0) {
      done = false;
      call = "write";
    } else {
      at += (uint32_t)wrote;
    }
  }
  answer(outbox, frame->id, done, call);
  drop(fd);
}

static void file_read(struct outbox *outbox, const struct frame *frame) {
  struct fields fields = fields_of(frame);
  char path[PATH_BYTES_MAX];
  uint64_t offset = field_u64(&fields);
  uint32_t wanted = field_u32(&fields);
  const char *call = "path";
  int fd = -1;
  uint8_t *bytes = NULL;
  if (wanted > CHUNK_BYTES_MAX) wanted = CHUNK_BYTES_MAX;
  errno = EINVAL;
  if (field_path(&fields, path)) fd = inside_open_regular(path, O_RDONLY, 0, &call);
  ssize_t got = -1;
  if (fd >= 0) {
    call = "read";
    bytes = malloc(wanted + 1u);
    if (bytes) got = pread(fd, bytes, wanted, (off_t)offset);
  }
  if (got >= 0) {
    struct body body = {.length = 0};
    put_u32(&body, (uint32_t)got < wanted || wanted == 0);
    put_u32(&body, (uint32_t)got);
    outbox_frame2(outbox, FRAME_BYTES, 0, frame->id, body.bytes, body.length, bytes, (size_t)got);
  } else {
    answer_error(outbox, frame->id, errno, call, NULL);
  }
  drop(fd);
  free(bytes);
}

static void file_stat(struct outbox *outbox, const struct frame *frame) {
  struct fields fields = fields_of(frame);
  char path[PATH_BYTES_MAX], target[PATH_BYTES_MAX];
  uint32_t follow = field_u32(&fields);
  const char *call = "path";
  struct stat about;
  ssize_t length = 0;
  int fd = -1;
  errno = EINVAL;
  if (field_path(&fields, path)) {
    call = "stat";
    fd = inside_open(path, O_PATH | (follow ? 0 : O_NOFOLLOW), 0);
  }
  bool done = fd >= 0 && !fstat(fd, &about);
  if (done && S_ISLNK(about.st_mode)) done = (length = readlinkat(fd, "", target, sizeof target)) >= 0;
  if (!done) {
    answer_error(outbox, frame->id, errno, call, NULL);
  } else {
    struct body body = {.length = 0};
    put_u32(&body, about.st_mode);
    put_u32(&body, about.st_uid);
    put_u32(&body, about.st_gid);
    put_u32(&body, (uint32_t)about.st_nlink);
    put_u64(&body, (uint64_t)about.st_size);
    put_u64(&body, (uint64_t)about.st_mtim.tv_sec);
    put_u32(&body, (uint32_t)about.st_mtim.tv_nsec);
    put_u32(&body, (uint32_t)length);
    outbox_frame2(outbox, FRAME_STATUS, 0, frame->id, body.bytes, body.length, target,
                  (size_t)length);
  }
  drop(fd);
}

/* An existing directory is as good as a new one, unless it had to be new. */
static bool make_directory(const char *path, mode_t mode, bool parents) {
  const char *name;
  if (parents && inside_make_parents(path)) return false;
  int above = inside_open_parent(path, &name);
  bool done = above >= 0 && mkdirat(above, name, mode & 0777) == 0;
  drop(above);
  if (done || !parents || (errno != EEXIST && errno != EINVAL)) return done;
  int existing = inside_open(path, O_PATH | O_DIRECTORY, 0);
  drop(existing);
  return existing >= 0;
}

static void file_mkdir(struct outbox *outbox, const struct frame *frame) {
  struct fields fields = fields_of(frame);
  char path[PATH_BYTES_MAX];
  uint32_t mode = field_u32(&fields), parents = field_u32(&fields);
  errno = EINVAL;
  bool good = field_path(&fields, path);
  answer(outbox, frame->id, good && make_directory(path, mode, parents), good ? "mkdir" : "path");
}

static void file_rename(struct outbox *outbox, const struct frame *frame) {
  struct fields fields = fields_of(frame);
  char from[PATH_BYTES_MAX], to[PATH_BYTES_MAX];
  uint32_t replace = field_u32(&fields);
  const char *name, *new_name, *call = "path";
  int directory = -1, new_directory = -1;
  bool done = false;
  errno = EINVAL;
  if (field_path(&fields, from) && field_path(&fields, to)) {
    call = "rename";
    directory = inside_open_parent(from, &name);
    if (directory >= 0) new_directory = inside_open_parent(to, &new_name);
    done = new_directory >= 0 && !renameat2(directory, name, new_directory, new_name,
                                            replace ? 0 : RENAME_NOREPLACE);
  }
  answer(outbox, frame->id, done, call);
  drop(directory);
  drop(new_directory);
}

static void file_chmod(struct outbox *outbox, const struct frame *frame) {
  struct fields fields = fields_of(frame);
  char path[PATH_BYTES_MAX];
  uint32_t mode = field_u32(&fields);
  const char *call = "path";
  struct stat about;
  int fd = -1;
  bool done = false;
  errno = EINVAL;
  if (field_path(&fields, path)) {
    call = "open";
    fd = inside_open(path, O_RDONLY, 0);
  }
  if (fd >= 0) {
    call = "not a file or directory";
    errno = EINVAL;
    if (!fstat(fd, &about) && (S_ISREG(about.st_mode) || S_ISDIR(about.st_mode)) && !is_unreal(fd)) {
      call = "chmod";
      done = fchmod(fd, mode & 0777) == 0;
    }
  }
  answer(outbox, frame->id, done, call);
  drop(fd);
}

static void file_symlink(struct outbox *outbox, const struct frame *frame) {
  struct fields fields = fields_of(frame);
  char path[PATH_BYTES_MAX], *target = text_copy(field_text(&fields));
  const char *name, *call = "path";
  int above = -1;
  bool done = false;
  errno = EINVAL;
  if (field_path(&fields, path) && target) {
    call = "symlink";
    above = inside_open_parent(path, &name);
    done = above >= 0 && symlinkat(target, above, name) == 0;
  }
  answer(outbox, frame->id, done, call);
  drop(above);
  free(target);
}

bool files_answer(struct outbox *outbox, const struct frame *frame) {
  switch (frame->type) {
    case FRAME_WRITE: file_write(outbox, frame); return true;
    case FRAME_READ: file_read(outbox, frame); return true;
    case FRAME_STAT: file_stat(outbox, frame); return true;
    case FRAME_MKDIR: file_mkdir(outbox, frame); return true;
    case FRAME_RENAME: file_rename(outbox, frame); return true;
    case FRAME_CHMOD: file_chmod(outbox, frame); return true;
    case FRAME_SYMLINK: file_symlink(outbox, frame); return true;
    default: return cursors_answer(outbox, frame);
  }
}
