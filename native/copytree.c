/* See copytree.h. Nothing is ever opened by a path of more than one name, no link is followed, and what
 * was opened is looked at again: a program of the sandbox may be at work in the same tree. */
#include "copytree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define XATTR_NAMES_BYTES 65536
#define XATTR_VALUE_BYTES 65536
#define NOBODY 65534u
#define CHUNK_BYTES (1u << 20)

/* The first copy of a file that has several names. */
struct linked {
  ino_t inode;
  char *path; /* below the root of the copy */
};

struct copy {
  int root;
  uint32_t first_id;
  struct linked *linked;
  size_t linked_count, linked_room;
  char path[TREE_DEPTH_MAX * 256 + 1];
  size_t path_length;
};

static uid_t shifted(const struct copy *copy, uid_t id) {
  if (!copy->first_id) return id;
  return id >= copy->first_id && id - copy->first_id < 65536u ? id - copy->first_id : NOBODY;
}

static bool vanished(void) { return errno == ENOENT || errno == ELOOP || errno == ENXIO; }

static const char *copy_xattrs(int from, int to) {
  static char names[XATTR_NAMES_BYTES], value[XATTR_VALUE_BYTES];
  ssize_t length = flistxattr(from, names, sizeof names);
  if (length < 0) return errno == ENOTSUP ? NULL : "flistxattr";
  for (const char *name = names; name < names + length; name += strlen(name) + 1) {
    if (strncmp(name, "user.", 5)) continue;
    ssize_t size = fgetxattr(from, name, value, sizeof value);
    if (size < 0 && errno == ENODATA) continue;
    if (size < 0 || fsetxattr(to, name, value, (size_t)size, 0)) return "copy(xattr)";
  }
  return NULL;
}

/* Owner before mode: changing the owner clears the set-user-id bits. */
static const char *copy_about(const struct copy *copy, const struct stat *about, int to) {
  if (fchown(to, shifted(copy, about->st_uid), shifted(copy, about->st_gid))) return "fchown";
  if (fchmod(to, about->st_mode & 07777)) return "fchmod";
  const struct timespec times[2] = {about->st_atim, about->st_mtim};
  return futimens(to, times) ? "futimens" : NULL;
}

static const char *copy_name_about(const struct copy *copy, const struct stat *about, int to,
                                   const char *name) {
  const struct timespec times[2] = {about->st_atim, about->st_mtim};
  if (fchownat(to, name, shifted(copy, about->st_uid), shifted(copy, about->st_gid),
               AT_SYMLINK_NOFOLLOW))
    return "fchownat";
  if (!S_ISLNK(about->st_mode) && fchmodat(to, name, about->st_mode & 07777, 0)) return "fchmodat";
  return utimensat(to, name, times, AT_SYMLINK_NOFOLLOW) ? "utimensat" : NULL;
}

static const char *copy_bytes(int from, int to, off_t size) {
  static char chunk[CHUNK_BYTES];
  if (ftruncate(to, size)) return "ftruncate";
  for (off_t at = 0; (at = lseek(from, at, SEEK_DATA)) >= 0 && at < size;) {
    off_t end = lseek(from, at, SEEK_HOLE);
    if (end < 0 || end > size) end = size;
    while (at < end) {
      size_t wanted = end - at < (off_t)sizeof chunk ? (size_t)(end - at) : sizeof chunk;
      ssize_t got = pread(from, chunk, wanted, at);
      if (got <= 0) return got ? "read" : NULL;
      ssize_t wrote = pwrite(to, chunk, (size_t)got, at); /* a part, when the rest has no room */
      if (wrote <= 0) return "write";
      at += wrote;
    }
  }
  return NULL;
}

static bool link_to_first(const struct copy *copy, ino_t inode, int to, const char *name) {
  for (size_t i = 0; i < copy->linked_count; i++)
    if (copy->linked[i].inode == inode) return !linkat(copy->root, copy->linked[i].path, to, name, 0);
  return false;
}

static const char *remember_first(struct copy *copy, ino_t inode) {
  if (copy->linked_count == copy->linked_room) {
    size_t room = copy->linked_room ? 2 * copy->linked_room : 64;
    struct linked *grown = realloc(copy->linked, room * sizeof *grown);
    if (!grown) return "memory";
    copy->linked = grown;
    copy->linked_room = room;
  }
  char *path = strdup(copy->path);
  if (!path) return "memory";
  copy->linked[copy->linked_count++] = (struct linked){.inode = inode, .path = path};
  return NULL;
}

static const char *copy_file(struct copy *copy, int from, int to, const char *name) {
  struct stat about;
  int source = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (source < 0) return vanished() ? NULL : "open(file)";
  const char *failed = fstat(source, &about) ? "fstat" : NULL;
  if (failed || !S_ISREG(about.st_mode) ||
      (about.st_nlink > 1 && link_to_first(copy, about.st_ino, to, name))) {
    close(source);
    return failed;
  }
  int made = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (made < 0) failed = "create(file)";
  if (!failed) failed = copy_bytes(source, made, about.st_size);
  if (!failed) failed = copy_xattrs(source, made);
  if (!failed) failed = copy_about(copy, &about, made);
  if (!failed && about.st_nlink > 1) failed = remember_first(copy, about.st_ino);
  int error = errno;
  if (made >= 0) close(made);
  close(source);
  errno = error;
  return failed;
}

static const char *copy_link(const struct copy *copy, const struct stat *about, int from, int to,
                             const char *name) {
  char target[4097];
  ssize_t length = readlinkat(from, name, target, sizeof target - 1);
  if (length < 0) return vanished() || errno == EINVAL ? NULL : "readlink";
  target[length] = 0;
  if (symlinkat(target, to, name)) return "symlink";
  return copy_name_about(copy, about, to, name);
}

static const char *copy_directory(struct copy *copy, int from, int to, int depth);

static const char *copy_below(struct copy *copy, int from, int to, const char *name, int depth) {
  struct stat about;
  int source = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (source < 0) return vanished() || errno == ENOTDIR ? NULL : "open(directory)";
  int made = -1;
  const char *failed = fstat(source, &about) ? "fstat" : NULL;
  if (!failed && mkdirat(to, name, 0700)) failed = "mkdir";
  if (!failed && (made = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
    failed = "open(copy)";
  if (!failed) failed = copy_directory(copy, source, made, depth + 1);
  if (!failed) failed = copy_xattrs(source, made);
  if (!failed) failed = copy_about(copy, &about, made);
  int error = errno;
  if (made >= 0) close(made);
  close(source);
  errno = error;
  return failed;
}

static const char *copy_entry(struct copy *copy, int from, int to, const char *name, int depth) {
  struct stat about;
  if (fstatat(from, name, &about, AT_SYMLINK_NOFOLLOW)) return vanished() ? NULL : "fstatat";
  switch (about.st_mode & S_IFMT) {
    case S_IFDIR: return copy_below(copy, from, to, name, depth);
    case S_IFREG: return copy_file(copy, from, to, name);
    case S_IFLNK: return copy_link(copy, &about, from, to, name);
    case S_IFIFO:
      if (mkfifoat(to, name, 0600)) return "mkfifo";
      return copy_name_about(copy, &about, to, name);
    case S_IFCHR: /* 0:0 is how an overlay marks what was deleted; there can be no other */
      return about.st_rdev == 0 && mknodat(to, name, S_IFCHR, 0) ? "mknod(whiteout)" : NULL;
    default: return NULL;
  }
}

static const char *copy_directory(struct copy *copy, int from, int to, int depth) {
  if (depth > TREE_DEPTH_MAX) {
    errno = ENAMETOOLONG;
    return "tree depth";
  }
  int listed = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *names = listed < 0 ? NULL : fdopendir(listed);
  if (!names) {
    if (listed >= 0) close(listed);
    return "list";
  }
  const char *failed = NULL;
  size_t length = copy->path_length;
  for (struct dirent *entry; !failed && (entry = readdir(names));) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    copy->path_length = length + (size_t)snprintf(copy->path + length, sizeof copy->path - length, "%s%s",
                                                  length ? "/" : "", entry->d_name);
    failed = copy_entry(copy, from, to, entry->d_name, depth);
    copy->path_length = length;
  }
  int error = errno;
  closedir(names);
  errno = error;
  return failed;
}

const char *copy_tree(int from, int to, uint32_t first_id) {
  static struct copy copy;
  copy = (struct copy){.root = to, .first_id = first_id};
  return copy_directory(&copy, from, to, 0); /* its process ends next: what it allocated stays */
}
