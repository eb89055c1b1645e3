/* Theory of operation
 *
 * The host never opens a path of the sandbox; the supervisor does, and trusts no path either, because
 * programs move, replace and link names while it looks at them. So:
 *
 * - Every open goes through openat2, with RESOLVE_IN_ROOT (no `..` or absolute link leads out) or
 *   RESOLVE_BENEATH and NO_SYMLINKS, always with NO_MAGICLINKS (no /proc/<pid>/fd, root, cwd). The
 *   kernel holds this at each step of the walk, so there is no moment between a check and its use.
 * - What was opened is looked at after it was opened, by its descriptor, and is closed again unless it
 *   is what was asked for. Opening never blocks: not on a FIFO, nor on a lease that a program holds
 *   (O_NONBLOCK), and gives the supervisor no terminal (O_NOCTTY).
 * - Content is read and written of regular files on real file systems only, so that neither a device
 *   nor the supervisor's own /proc entries can be reached.
 * - What changes a name does so below a directory held open, on one last name that is no `..`.
 */
#include "inside.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SYSFS 0x62656572
#define TRIES 16 /* the kernel gives a walk through `..` up when names move meanwhile */

static int root_fd = -1;

void inside_set_up(int root) { root_fd = root; }

static int open_how(int directory, const char *path, uint64_t flags, mode_t mode, uint64_t resolve) {
  /* openat2 refuses O_PATH together with flags that only matter to an opened file. */
  uint64_t always = flags & O_PATH ? O_CLOEXEC : O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  struct open_how how = {.flags = flags | always,
                         .mode = flags & O_CREAT ? mode & 0777 : 0,
                         .resolve = resolve | RESOLVE_NO_MAGICLINKS};
  int fd = -1;
  for (int tries = 0; fd < 0 && tries < TRIES; tries++) {
    fd = (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
    if (fd < 0 && errno != EAGAIN) break;
  }
  return fd;
}

int inside_open(const char *path, uint64_t flags, mode_t mode) {
  return open_how(root_fd, path, flags, mode, RESOLVE_IN_ROOT);
}

int below_open(int directory, const char *path, uint64_t flags, mode_t mode, bool across) {
  uint64_t resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | (across ? 0 : RESOLVE_NO_XDEV);
  return open_how(directory, path, flags | O_NOFOLLOW, mode, resolve);
}

bool is_unreal(int fd) {
  struct statfs on;
  return fstatfs(fd, &on) || on.f_type == PROC_SUPER_MAGIC || on.f_type == SYSFS;
}

/* Keeps a descriptor of a regular file; closes any other and fails with EINVAL. */
static int only_regular(int fd) {
  struct stat about;
  if (fd < 0) return -1;
  if (!fstat(fd, &about) && S_ISREG(about.st_mode) && !is_unreal(fd)) return fd;
  close(fd);
  errno = EINVAL;
  return -1;
}

int inside_open_regular(const char *path, uint64_t flags, mode_t mode, const char **call) {
  int fd = inside_open(path, flags, mode);
  *call = fd < 0 ? "open" : "not a regular file";
  return only_regular(fd);
}

int below_open_regular(int directory, const char *path, uint64_t flags, mode_t mode, bool across) {
  return only_regular(below_open(directory, path, flags, mode, across));
}

int inside_open_parent(const char *path, const char **name) {
  char above[PATH_BYTES_MAX];
  const char *slash = strrchr(path, '/');
  size_t length = slash ? (size_t)(slash - path) : 0;
  *name = slash ? slash + 1 : path;
  if (!**name || !strcmp(*name, ".") || !strcmp(*name, "..") || length >= sizeof above) {
    errno = EINVAL;
    return -1;
  }
  memcpy(above, path, length);
  above[length] = 0;
  return inside_open(length ? above : "/", O_PATH | O_DIRECTORY, 0);
}

int inside_make_parents(const char *path) {
  char above[PATH_BYTES_MAX];
  for (const char *slash = path; (slash = strchr(slash + 1, '/'));) {
    size_t length = (size_t)(slash - path);
    const char *name;
    if (length >= sizeof above) {
      errno = ENAMETOOLONG;
      return -1;
    }
    memcpy(above, path, length);
    above[length] = 0;
    int fd = inside_open(above, O_PATH | O_DIRECTORY, 0);
    if (fd >= 0) {
      close(fd);
      continue;
    }
    /* Any other failure comes back from the open that the directories are made for. */
    if (errno != ENOENT) continue;
    int directory = inside_open_parent(above, &name);
    int made = directory < 0 ? -1 : mkdirat(directory, name, 0755);
    int error = errno;
    if (directory >= 0) close(directory);
    errno = error;
    if (made && errno != EEXIST) return -1;
  }
  return 0;
}

bool field_path(struct fields *fields, char *path) {
  struct text text = field_text(fields);
  size_t length = 0;
  if (text.length == 0 || text.length >= PATH_BYTES_MAX || memchr(text.bytes, 0, text.length))
    fields->bad = true;
  for (uint32_t i = 0; !fields->bad && i < text.length; i++)
    if (text.bytes[i] != '/' || length == 0 || path[length - 1] != '/') path[length++] = text.bytes[i];
  if (length > 1 && path[length - 1] == '/') length--;
  path[length] = 0;
  return !fields->bad;
}

void answer_error(struct outbox *outbox, uint32_t id, int error, const char *call, const char *entry) {
  struct body body = {.length = 0};
  size_t length = entry ? strlen(entry) : 0;
  if (length >= PATH_BYTES_MAX) length = PATH_BYTES_MAX - 1;
  put_u32(&body, (uint32_t)error);
  put_text(&body, call);
  put_u32(&body, (uint32_t)length);
  outbox_frame2(outbox, FRAME_ERROR, 0, id, body.bytes, body.length, entry, length);
}
