/* See differences.h.
 *
 * Theory of operation. The overlay keeps what a sandbox wrote in a layer of its own, so only that is
 * walked, however big the image is. Beside each of its directories go the directories of the same name
 * of the layers below, topmost first, as far as they can be seen through: a layer that has a file or a
 * mark of deletion there, or an opaque directory, hides those below it. A name's state before is what the
 * first of them that has it says. A file that was only touched, or copied up without a change, is no
 * difference. As in copytree.c, no path of more than one name is opened and no link followed.
 */
#include "differences.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "copytree.h"
#include "frames.h"
#include "stage.h"

#define CONTENT_BYTES_MAX (256u << 10) /* of one file, each way */
#define RECORDS_MAX 100000
#define TOTAL_BYTES_MAX (64u << 20)
#define NAMES_BYTES_MAX (32u << 20) /* a path may have 50 KB: programs need not name it to make it */
#define BELOW_MAX 24

/* One directory, in each layer below; -1 where it is not, or cannot be seen. */
struct below {
  int fds[BELOW_MAX];
  int count;
};

/* A name's state before. */
struct before {
  bool is;
  struct stat about;
  int fd;                   /* the directory in which it is; -1: it is a file of the image's own */
  const struct entry *own;  /* or the record that put it into every sandbox's own layer */
};

struct comparison {
  const struct rootfs *rootfs;
  FILE *into;
  uint64_t written, names;
  uint32_t records;
  bool with_own; /* the layer starts with what the image puts into each */
  char path[TREE_DEPTH_MAX * 256 + STAGED_PATH_BYTES];
  size_t path_length;
};

static bool is_whiteout(const struct stat *about) {
  return S_ISCHR(about->st_mode) && about->st_rdev == 0;
}

static bool is_opaque(int directory) {
  char value[2];
  return fgetxattr(directory, "user.overlay.opaque", value, sizeof value) == 1 && value[0] == 'y';
}

static int open_below(int directory, const char *name) {
  return openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static struct before state_before(const struct comparison *comparison, const struct below *below,
                                  const char *name) {
  struct before before = {.fd = -1};
  if (comparison->with_own)
    for (struct entry *own = image_entries(comparison->rootfs->image); own; own = own->next) {
      if (own->kind != IMAGE_DIRECTORY && own->kind != IMAGE_OWN_FILE) continue;
      if (strcmp(own->path, comparison->path)) continue;
      before.is = true;
      before.own = own;
      before.about.st_mode = (own->mode & 07777) | (own->kind == IMAGE_DIRECTORY ? S_IFDIR : S_IFREG);
      before.about.st_size = own->kind == IMAGE_DIRECTORY ? 0 : own->argument_bytes;
      return before;
    }
  for (int i = 0; i < below->count; i++) {
    if (below->fds[i] < 0 || fstatat(below->fds[i], name, &before.about, AT_SYMLINK_NOFOLLOW)) continue;
    before.is = !is_whiteout(&before.about);
    before.fd = below->fds[i];
    return before;
  }
  return before;
}

static void descend(const struct below *below, const char *name, struct below *into) {
  into->count = 0;
  for (int i = 0; i < below->count; i++) {
    struct stat about;
    if (below->fds[i] < 0 || fstatat(below->fds[i], name, &about, AT_SYMLINK_NOFOLLOW)) continue;
    if (!S_ISDIR(about.st_mode)) return;
    int fd = open_below(below->fds[i], name);
    if (fd < 0) return;
    into->fds[into->count++] = fd;
    if (is_opaque(fd)) return;
  }
}

static void leave(struct below *below) {
  for (int i = 0; i < below->count; i++) close(below->fds[i]);
}

/* A file's bytes or a link's target, in memory; NULL when there is no such content to show. */
static char *content_of(int directory, const char *name, const struct stat *about, size_t *length) {
  if (S_ISLNK(about->st_mode)) {
    char *target = malloc(4097);
    ssize_t got = target ? readlinkat(directory, name, target, 4096) : -1;
    if (got >= 0) *length = (size_t)got;
    if (got < 0) free(target);
    return got < 0 ? NULL : target;
  }
  if (!S_ISREG(about->st_mode) || about->st_size > (off_t)CONTENT_BYTES_MAX) return NULL;
  int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return NULL;
  char *bytes = malloc(CONTENT_BYTES_MAX + 1);
  ssize_t got = bytes ? pread(fd, bytes, CONTENT_BYTES_MAX + 1, 0) : -1;
  close(fd);
  if (got < 0 || got > (ssize_t)CONTENT_BYTES_MAX) {
    free(bytes);
    return NULL;
  }
  *length = (size_t)got;
  return bytes;
}

/* Where there is something next, which is at `size` when only a hole follows. */
static off_t data_from(int fd, off_t at, off_t size) {
  off_t found = lseek(fd, at, SEEK_DATA);
  if (found < 0) return errno == ENXIO ? size : at;
  return found < size ? found : size;
}

/* Of holes nothing is read: they cost a program nothing, whatever their size. */
static bool same_bytes(int one, int other, off_t size) {
  static char left[65536], right[65536];
  for (off_t at = 0;;) {
    off_t first = data_from(one, at, size), second = data_from(other, at, size);
    at = first < second ? first : second;
    if (at >= size) return true;
    off_t end = lseek(first < second ? one : other, at, SEEK_HOLE);
    size_t wanted = end > at && end - at < (off_t)sizeof left ? (size_t)(end - at) : sizeof left;
    ssize_t got = pread(one, left, wanted, at), compared = pread(other, right, wanted, at);
    if (got <= 0 || got != compared || memcmp(left, right, (size_t)got)) return false;
    at += got;
  }
}

/* Both have `size` bytes by their names. */
static bool same_big_file(int one, const char *name, int other, off_t size) {
  int a = openat(one, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  int b = openat(other, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  bool same = a >= 0 && b >= 0 && same_bytes(a, b, size);
  if (a >= 0) close(a);
  if (b >= 0) close(b);
  return same;
}

static void put(struct comparison *comparison, const void *bytes, size_t length) {
  fwrite(bytes, 1, length, comparison->into);
  comparison->written += length;
}

static void put_string(struct comparison *comparison, const char *bytes, size_t length) {
  uint32_t size = (uint32_t)length;
  put(comparison, &size, sizeof size);
  if (length) put(comparison, bytes, length);
}

static const char *record(struct comparison *comparison, uint32_t kind, const struct stat *about,
                          const char *before, size_t before_bytes, const char *after,
                          size_t after_bytes) {
  comparison->names += comparison->path_length;
  if (++comparison->records > RECORDS_MAX || comparison->names > NAMES_BYTES_MAX) {
    errno = E2BIG;
    return "differences";
  }
  bool full = comparison->written + before_bytes + after_bytes > TOTAL_BYTES_MAX;
  if (full) before = after = NULL;
  bool has_content = S_ISREG(about->st_mode) || S_ISLNK(about->st_mode);
  bool left_out = has_content && ((kind != DIFFERENCE_ADDED && !before) ||
                                  (kind != DIFFERENCE_DELETED && !after));
  uint32_t head[2] = {kind, about->st_mode};
  uint64_t size = (uint64_t)about->st_size;
  uint32_t flags = (before ? DIFFERENCE_HAS_BEFORE : 0u) | (after ? DIFFERENCE_HAS_AFTER : 0u) |
                   (left_out ? DIFFERENCE_LEFT_OUT : 0u);
  put(comparison, head, sizeof head);
  put(comparison, &size, sizeof size);
  put_string(comparison, comparison->path, comparison->path_length);
  put(comparison, &flags, sizeof flags);
  put_string(comparison, before, before ? before_bytes : 0);
  put_string(comparison, after, after ? after_bytes : 0);
  return ferror(comparison->into) ? "write(differences)" : NULL;
}

static char *content_before(const struct before *before, const char *name, size_t *length) {
  if (!before->own) return content_of(before->fd, name, &before->about, length);
  if (before->own->kind != IMAGE_OWN_FILE) return NULL;
  char *copy = malloc(before->own->argument_bytes + 1u);
  if (copy) memcpy(copy, before->own->argument, before->own->argument_bytes);
  *length = before->own->argument_bytes;
  return copy;
}

static const char *deleted(struct comparison *comparison, const struct before *before, const char *name) {
  size_t length = 0;
  char *content = content_before(before, name, &length);
  const char *failed =
      record(comparison, DIFFERENCE_DELETED, &before->about, content, length, NULL, 0);
  free(content);
  return failed;
}

static const char *compare_leaf(struct comparison *comparison, int upper, const char *name,
                                const struct stat *about, const struct before *before) {
  size_t before_bytes = 0, after_bytes = 0;
  char *was = before->is ? content_before(before, name, &before_bytes) : NULL;
  char *now = content_of(upper, name, about, &after_bytes);
  bool same = before->is && before->about.st_mode == about->st_mode &&
              before->about.st_size == about->st_size;
  if (same && was && now)
    same = before_bytes == after_bytes && !memcmp(was, now, before_bytes);
  else if (same && S_ISREG(about->st_mode))
    same = !before->own && same_big_file(upper, name, before->fd, about->st_size);
  const char *failed = NULL;
  if (!same)
    failed = record(comparison, before->is ? DIFFERENCE_CHANGED : DIFFERENCE_ADDED, about, was,
                    before_bytes, now, after_bytes);
  free(was);
  free(now);
  return failed;
}

static const char *each_name(struct comparison *comparison, int directory,
                             const char *(*visit)(struct comparison *, void *, const char *),
                             void *context) {
  int listed = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *names = listed < 0 ? NULL : fdopendir(listed);
  if (!names) {
    if (listed >= 0) close(listed);
    return "list";
  }
  const char *failed = NULL;
  size_t length = comparison->path_length;
  for (struct dirent *entry; !failed && (entry = readdir(names));) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    comparison->path_length =
        length + (size_t)snprintf(comparison->path + length, sizeof comparison->path - length, "/%s",
                                  entry->d_name);
    failed = visit(comparison, context, entry->d_name);
    comparison->path_length = length;
    comparison->path[length] = 0;
  }
  closedir(names);
  return failed;
}

struct level {
  int upper;
  const struct below *below;
  int from; /* of `below`, when what an opaque directory hid is listed */
  int depth;
};

/* What an opaque directory hid, unless it was made again. */
static const char *visit_hidden(struct comparison *comparison, void *context, const char *name) {
  const struct level *level = context;
  struct stat about;
  if (!fstatat(level->upper, name, &about, AT_SYMLINK_NOFOLLOW)) return NULL;
  struct before before = state_before(comparison, level->below, name);
  if (!before.is || before.fd != level->below->fds[level->from]) return NULL;
  return deleted(comparison, &before, name);
}

static const char *compare_directory(struct comparison *comparison, struct level *level);

static const char *compare_below(struct comparison *comparison, const struct level *level,
                                 const char *name, const struct stat *about,
                                 const struct before *before) {
  if (level->depth == TREE_DEPTH_MAX) {
    errno = ENAMETOOLONG;
    return "tree depth";
  }
  const char *failed = NULL;
  bool was_directory = before->is && S_ISDIR(before->about.st_mode);
  if (!was_directory || before->about.st_mode != about->st_mode) {
    uint32_t kind = before->is ? DIFFERENCE_CHANGED : DIFFERENCE_ADDED;
    failed = record(comparison, kind, about, NULL, 0, NULL, 0);
  }
  struct below below = {.count = 0};
  int upper = open_below(level->upper, name);
  if (upper < 0) return failed;
  if (was_directory) descend(level->below, name, &below);
  struct level next = {.upper = upper, .below = &below, .depth = level->depth + 1};
  if (!failed) failed = compare_directory(comparison, &next);
  for (; !failed && is_opaque(upper) && next.from < below.count; next.from++)
    failed = each_name(comparison, below.fds[next.from], visit_hidden, &next);
  leave(&below);
  close(upper);
  return failed;
}

static const char *visit(struct comparison *comparison, void *context, const char *name) {
  const struct level *level = context;
  struct stat about;
  if (fstatat(level->upper, name, &about, AT_SYMLINK_NOFOLLOW)) return NULL; /* gone meanwhile */
  struct before before = state_before(comparison, level->below, name);
  if (is_whiteout(&about)) return before.is ? deleted(comparison, &before, name) : NULL;
  if (S_ISDIR(about.st_mode)) return compare_below(comparison, level, name, &about, &before);
  return compare_leaf(comparison, level->upper, name, &about, &before);
}

static const char *compare_directory(struct comparison *comparison, struct level *level) {
  return each_name(comparison, level->upper, visit, level);
}

/* What the image had put into the layer itself leaves no mark when it goes. */
static const char *own_deleted(struct comparison *comparison, int upper) {
  struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                         .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
  const char *failed = NULL;
  for (struct entry *own = image_entries(comparison->rootfs->image); own && !failed; own = own->next) {
    if (own->kind != IMAGE_DIRECTORY && own->kind != IMAGE_OWN_FILE) continue;
    char above[STAGED_PATH_BYTES];
    snprintf(above, sizeof above, ".%s", own->path);
    char *name = strrchr(above, '/');
    *name++ = 0;
    int directory = (int)syscall(SYS_openat2, upper, above, &how, sizeof how);
    if (directory < 0) continue; /* the whole directory went, and is told of itself */
    struct stat about;
    bool gone = fstatat(directory, name, &about, AT_SYMLINK_NOFOLLOW) && errno == ENOENT;
    close(directory);
    if (!gone) continue;
    comparison->path_length =
        (size_t)snprintf(comparison->path, sizeof comparison->path, "%s", own->path);
    struct before before = state_before(comparison, &(struct below){.count = 0}, name);
    failed = deleted(comparison, &before, name);
  }
  return failed;
}

static const char *compare_overlay(struct comparison *comparison, const struct overlay *overlay) {
  int upper = open_below(comparison->rootfs->layer, overlay->upper);
  if (upper < 0) return "open(layer)";
  struct below below = {.count = 0};
  for (int i = 0; i < overlay->lowers && i < BELOW_MAX; i++) {
    const char *path = staged("%s", comparison->rootfs->lower[overlay->first_lower + i].path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) below.fds[below.count++] = fd;
  }
  comparison->path_length = (size_t)snprintf(comparison->path, sizeof comparison->path, "%s", overlay->at);
  comparison->with_own = !*overlay->at && !comparison->rootfs->snapshot;
  struct level level = {.upper = upper, .below = &below, .depth = 0};
  const char *failed = compare_directory(comparison, &level);
  if (!failed && comparison->with_own) failed = own_deleted(comparison, upper);
  leave(&below);
  close(upper);
  return failed;
}

const char *differences_write(const struct rootfs *rootfs, int into) {
  static struct comparison comparison;
  comparison = (struct comparison){.rootfs = rootfs, .into = fdopen(dup(into), "w")};
  if (!comparison.into) return "fdopen";
  const char *failed = NULL;
  for (int i = 0; i < rootfs->overlay_count && !failed; i++)
    failed = compare_overlay(&comparison, &rootfs->overlays[i]);
  if (fclose(comparison.into) && !failed) failed = "write(differences)";
  return failed;
}
