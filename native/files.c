/* See files.h.
 *
 * The host never opens a path of the sandbox; this does, and trusts no path either: every open goes
 * through openat2 with RESOLVE_IN_ROOT (no `..` or absolute link leads out) and NO_MAGICLINKS (no
 * /proc/<pid>/fd, root, cwd), never blocks on a FIFO, and accepts regular files on real file systems
 * only, so that neither a device nor the supervisor's own /proc entries can be read through it.
 */
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define ENTRIES_BYTES_MAX (512u * 1024u)
#define PATH_BYTES_MAX 4096u
#define SYSFS 0x62656572

static void answer_error(struct outbox *outbox, uint32_t id, int error, const char *call) {
  struct body body = {.length = 0};
  put_u32(&body, (uint32_t)error);
  put_text(&body, call);
  outbox_frame(outbox, FRAME_ERROR, 0, id, body.bytes, body.length);
}

static int open_inside(const char *path, uint64_t flags, mode_t mode) {
  /* openat2 refuses O_PATH together with flags that only matter to an opened file. */
  uint64_t always = flags & O_PATH ? O_CLOEXEC : O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  struct open_how how = {.flags = flags | always,
                         .mode = flags & O_CREAT ? mode : 0,
                         .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
  int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) return -1;
  int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
  int error = errno;
  close(root);
  errno = error;
  return fd;
}

/* Opens a regular file of a real file system. `call` says what failed. */
static int open_regular(const char *path, uint64_t flags, mode_t mode, const char **call) {
  struct stat about;
  struct statfs on;
  int fd = open_inside(path, flags, mode);
  *call = "open";
  if (fd < 0) return -1;
  if (fstat(fd, &about) || fstatfs(fd, &on) || !S_ISREG(about.st_mode) ||
      on.f_type == PROC_SUPER_MAGIC || on.f_type == SYSFS) {
    close(fd);
    *call = "not a regular file";
    errno = EINVAL;
    return -1;
  }
  return fd;
}

/* Makes the directories above `path`, each resolved inside the root. */
static int make_parents(char *path) {
  for (char *slash = path; (slash = strchr(slash + 1, '/'));) {
    *slash = 0;
    int fd = *path ? open_inside(path, O_PATH | O_DIRECTORY, 0) : -1;
    if (fd < 0 && errno == ENOENT && *path) {
      char *last = strrchr(path, '/');
      int above;
      if (last && last != path) {
        *last = 0;
        above = open_inside(path, O_PATH | O_DIRECTORY, 0);
        *last = '/';
      } else {
        above = open_inside("/", O_PATH | O_DIRECTORY, 0);
      }
      const char *name = last ? last + 1 : path;
      int made = above < 0 ? -1 : mkdirat(above, name, 0755);
      int error = errno;
      if (above >= 0) close(above);
      errno = error;
      if (made && errno != EEXIST) {
        *slash = '/';
        return -1;
      }
    } else if (fd >= 0) {
      close(fd);
    }
    *slash = '/';
  }
  return 0;
}

static char *field_path(struct fields *fields) {
  struct text text = field_text(fields);
  if (fields->bad || text.length == 0 || text.length >= PATH_BYTES_MAX) {
    fields->bad = true;
    return NULL;
  }
  char *path = text_copy(text);
  if (!path) fields->bad = true;
  return path;
}

void file_write(struct outbox *outbox, const struct frame *frame) {
  struct fields fields = fields_of(frame);
  uint32_t mode = field_u32(&fields), append = field_u32(&fields);
  char *path = field_path(&fields);
  struct text bytes = field_text(&fields);
  const char *call = "write";
  int fd = -1;
  if (fields.bad) {
    errno = EINVAL;
    call = "path";
  } else if (make_parents(path)) {
    call = "mkdir";
  } else {
    /* Truncated only after it is known to be regular. */
    fd = open_regular(path, O_WRONLY | O_CREAT | (append ? O_APPEND : 0), mode & 0777, &call);
  }
  bool done = fd >= 0;
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
  if (done)
    outbox_frame(outbox, FRAME_DONE, 0, frame->id, NULL, 0);
  else
    answer_error(outbox, frame->id, errno, call);
  if (fd >= 0) close(fd);
  free(path);
}

void file_read(struct outbox *outbox, const struct frame *frame) {
  struct fields fields = fields_of(frame);
  uint64_t offset = field_u64(&fields);
  uint32_t wanted = field_u32(&fields);
  char *path = field_path(&fields);
  const char *call = "path";
  int fd = -1;
  uint8_t *bytes = NULL;
  if (wanted > CHUNK_BYTES_MAX) wanted = CHUNK_BYTES_MAX;
  if (fields.bad)
    errno = EINVAL;
  else
    fd = open_regular(path, O_RDONLY, 0, &call);
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
    answer_error(outbox, frame->id, errno, call);
  }
  if (fd >= 0) close(fd);
  free(bytes);
  free(path);
}

/* Adds one entry; false when it does not fit. */
static bool add_entry(uint8_t *list, size_t *used, int directory, const char *name) {
  struct stat about;
  size_t length = strlen(name);
  if (*used + 16 + length > ENTRIES_BYTES_MAX) return false;
  if (fstatat(directory, name, &about, AT_SYMLINK_NOFOLLOW)) memset(&about, 0, sizeof about);
  struct body body = {.length = 0};
  put_u32(&body, about.st_mode);
  put_u64(&body, (uint64_t)about.st_size);
  put_u32(&body, (uint32_t)length);
  memcpy(list + *used, body.bytes, body.length);
  memcpy(list + *used + body.length, name, length);
  *used += body.length + length;
  return true;
}

void file_list(struct outbox *outbox, const struct frame *frame) {
  struct fields fields = fields_of(frame);
  char *path = field_path(&fields);
  uint32_t count = 0, cut = 0;
  size_t used = 0;
  DIR *directory = NULL;
  uint8_t *list = malloc(ENTRIES_BYTES_MAX);
  if (fields.bad)
    errno = EINVAL;
  else if (list) {
    int fd = open_inside(path, O_RDONLY | O_DIRECTORY, 0);
    if (fd >= 0 && !(directory = fdopendir(fd))) close(fd);
  }
  if (!directory) {
    answer_error(outbox, frame->id, errno, "list");
  } else {
    for (struct dirent *entry; !cut && (entry = readdir(directory));) {
      if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
      if (add_entry(list, &used, dirfd(directory), entry->d_name))
        count++;
      else
        cut = 1;
    }
    struct body body = {.length = 0};
    put_u32(&body, cut);
    put_u32(&body, count);
    outbox_frame2(outbox, FRAME_ENTRIES, 0, frame->id, body.bytes, body.length, list, used);
    closedir(directory);
  }
  free(list);
  free(path);
}
