/* Calls about files, done below the temporary directory and nowhere else.
 *
 * A path is split into its directory and its last part. The directory is opened under
 * RESOLVE_IN_ROOT, from the temporary directory for an absolute path, and the last part is then a name
 * in it, which no link can lead astray. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "seam_world.h"

struct place {
  int directory;
  const char *name;
  char buffer[4096];
};

/* O_TMPFILE has a bit of O_DIRECTORY in it. */
static bool makes(uint64_t flags) {
  return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
}

static int resolve(int from, const char *path, uint64_t flags, mode_t mode) {
  struct open_how how = {.flags = flags | O_CLOEXEC,
                         .mode = makes(flags) ? mode & 07777 : 0,
                         .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
  int base = *path == '/' || from == AT_FDCWD ? world.root : from;
  if (makes(flags) || flags & O_TRUNC) seam_touched();
  return (int)syscall(SYS_openat2, base, path, &how, sizeof how);
}

static bool find(struct place *place, int from, const char *path) {
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') length--;
  if (length >= sizeof place->buffer) {
    errno = ENAMETOOLONG;
    return false;
  }
  memcpy(place->buffer, path, length);
  place->buffer[length] = 0;
  char *slash = strrchr(place->buffer, '/');
  place->name = slash ? slash + 1 : place->buffer;
  if (!*place->name || !strcmp(place->name, ".") || !strcmp(place->name, "..")) {
    errno = EINVAL;
    return false;
  }
  char above[4096] = ".";
  if (slash) snprintf(above, sizeof above, "%.*s/", (int)(slash - place->buffer), place->buffer);
  place->directory = resolve(from, above, O_PATH | O_DIRECTORY, 0);
  seam_touched();
  return place->directory >= 0;
}

static int left(const struct place *place, int result) {
  int error = errno;
  close(place->directory);
  errno = error;
  return result;
}

/* One call at a place. */
#define AT(from, path, call)                                   \
  do {                                                         \
    struct place place;                                        \
    return find(&place, from, path) ? left(&place, call) : -1; \
  } while (0)

/* A program that runs from memory already: the copying of itself needs an exec. */
static int own_program(void) {
  int fd = memfd_create("program", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd >= 0) fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL);
  return fd;
}

/* The kernel's own files are there, take what is written, and hold what the world says. */
static bool of_kernel(const char *path) {
  return !strncmp(path, "/proc/", 6) || !strncmp(path, "/cgroup/", 8) || !strncmp(path, "/sys/", 5);
}

int seam_openat(int from, const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  mode_t mode = makes((uint64_t)flags) ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (!strcmp(path, "/dev/null")) return open(path, O_RDWR | O_CLOEXEC);
  if (!strcmp(path, "/proc/self/exe")) return own_program();
  int fd = resolve(from, path, (uint64_t)(unsigned)flags & ~(uint64_t)O_LARGEFILE, mode);
  if (fd >= 0 || errno != ENOENT || !of_kernel(path) || seam_choice(8) == 7) return fd;
  return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

int seam_open(const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  mode_t mode = makes((uint64_t)flags) ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return seam_openat(AT_FDCWD, path, flags, mode);
}

DIR *seam_opendir(const char *path) {
  int fd = seam_open(path, O_RDONLY | O_DIRECTORY);
  DIR *directory = fd < 0 ? NULL : fdopendir(fd);
  if (fd >= 0 && !directory) close(fd);
  return directory;
}

/* openat2 itself. The program's own rule is that no path leads out, so one that may is a fault. */
int seam_openat2(int from, const char *path, const struct open_how *asked) {
  struct open_how how = *asked;
  if (!(how.resolve & (RESOLVE_IN_ROOT | RESOLVE_BENEATH)))
    seam_fail("openat2 of a path that may lead out of the sandbox");
  if (makes(how.flags) || how.flags & O_TRUNC) seam_touched();
  return (int)syscall(SYS_openat2, from == AT_FDCWD ? world.root : from, path, &how, sizeof how);
}

/* Mount points that the launcher makes by the hundred at its start. Nothing is ever mounted on them
 * here, so nothing looks into them, and making them would take most of a run. */
#define UNUSED_POINTS "/stage/lower/"

int seam_mkdirat(int from, const char *path, mode_t mode) {
  if (!strncmp(path, UNUSED_POINTS, sizeof UNUSED_POINTS - 1)) return 0;
  AT(from, path, mkdirat(place.directory, place.name, mode & 07777));
}
int seam_mkdir(const char *path, mode_t mode) { return seam_mkdirat(AT_FDCWD, path, mode); }

int seam_mkfifoat(int from, const char *path, mode_t mode) {
  AT(from, path, mkfifoat(place.directory, place.name, mode & 0777));
}
int seam_mkfifo(const char *path, mode_t mode) { return seam_mkfifoat(AT_FDCWD, path, mode); }

int seam_unlinkat(int from, const char *path, int flags) {
  AT(from, path, unlinkat(place.directory, place.name, flags));
}
int seam_unlink(const char *path) { return seam_unlinkat(AT_FDCWD, path, 0); }
int seam_rmdir(const char *path) { return seam_unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int seam_symlinkat(const char *target, int from, const char *path) {
  AT(from, path, symlinkat(target, place.directory, place.name));
}
int seam_symlink(const char *target, const char *path) {
  return seam_symlinkat(target, AT_FDCWD, path);
}

int seam_renameat(int from, const char *old, int to, const char *new) {
  struct place first, second;
  if (!find(&first, from, old)) return -1;
  if (!find(&second, to, new)) return left(&first, -1);
  int result = renameat(first.directory, first.name, second.directory, second.name);
  return left(&first, left(&second, result));
}
int seam_renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
  (void)flags;
  return seam_renameat(from, old, to, new);
}
int seam_rename(const char *old, const char *new) {
  return seam_renameat(AT_FDCWD, old, AT_FDCWD, new);
}

/* Modes are not followed through a link: the name itself may be one. */
int seam_fchmodat(int from, const char *path, mode_t mode, int flags) {
  (void)flags;
  int fd = resolve(from, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0);
  if (fd < 0) return -1;
  int result = fchmod(fd, mode & 07777);
  close(fd);
  return result;
}
int seam_chmod(const char *path, mode_t mode) { return seam_fchmodat(AT_FDCWD, path, mode, 0); }

int seam_fstatat(int from, const char *path, struct stat *about, int flags) {
  if (!*path) return fstatat(from, "", about, AT_EMPTY_PATH);
  (void)flags;
  int fd = resolve(from, path, O_PATH | (flags & AT_SYMLINK_NOFOLLOW ? O_NOFOLLOW : 0), 0);
  if (fd < 0) return -1;
  int result = fstat(fd, about);
  close(fd);
  return result;
}
int seam_lstat(const char *path, struct stat *about) {
  return seam_fstatat(AT_FDCWD, path, about, AT_SYMLINK_NOFOLLOW);
}
int seam_stat(const char *path, struct stat *about) { return seam_fstatat(AT_FDCWD, path, about, 0); }

ssize_t seam_readlinkat(int from, const char *path, char *buffer, size_t size) {
  struct place place;
  if (!*path) return readlinkat(from, "", buffer, size);
  if (!find(&place, from, path)) return -1;
  ssize_t got = readlinkat(place.directory, place.name, buffer, size);
  left(&place, 0);
  return got;
}
ssize_t seam_readlink(const char *path, char *buffer, size_t size) {
  return seam_readlinkat(AT_FDCWD, path, buffer, size);
}
