/* See users.h.
 *
 * Names are looked up by the child that will become the program, in the sandbox's own /etc/passwd,
 * which programs may have written: it is read without blocking, bounded, and believed for no more
 * than two numbers. The kernel refuses numbers outside the sandbox's own range, so whatever
 * the file says, it leads to a user of this sandbox. Nothing outside reads that file.
 */
#include "users.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define USERS_BYTES_MAX (256u * 1024u)

/* A decimal number up to `end`, which must be all of the text; false when it is not one. */
static bool read_number(const char *text, const char *end, uint32_t *number) {
  uint64_t value = 0;
  if (text == end || end - text > 10) return false;
  for (; text < end; text++) {
    if (*text < '0' || *text > '9') return false;
    value = value * 10 + (uint64_t)(*text - '0');
  }
  if (value >= UINT32_MAX) return false; /* the last one means "leave it as it is" to the kernel */
  *number = (uint32_t)value;
  return true;
}

/* Reads `name:password:uid:gid:` at the start of a line. */
static bool read_line(const char *line, const char *end, const char *name, uint32_t *uid,
                      uint32_t *gid) {
  size_t length = strlen(name);
  if ((size_t)(end - line) <= length || memcmp(line, name, length) || line[length] != ':')
    return false;
  const char *fields[4];
  const char *at = line;
  for (int n = 0; n < 4; n++) {
    at = memchr(at, ':', (size_t)(end - at));
    if (!at) return false;
    fields[n] = at++;
  }
  return read_number(fields[1] + 1, fields[2], uid) && read_number(fields[2] + 1, fields[3], gid);
}

static const char *find_user(const char *name, uint32_t *uid, uint32_t *gid) {
  static char bytes[USERS_BYTES_MAX];
  struct stat about;
  int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return "open(/etc/passwd)";
  if (fstat(fd, &about) || !S_ISREG(about.st_mode)) {
    close(fd);
    errno = EINVAL;
    return "/etc/passwd is no file";
  }
  size_t used = 0;
  for (ssize_t got; used < sizeof bytes; used += (size_t)got)
    if ((got = read(fd, bytes + used, sizeof bytes - used)) <= 0) break;
  close(fd);
  const char *end = strpbrk(name, ":\n") ? bytes : bytes + used; /* no name has those */
  for (const char *line = bytes; line < end;) {
    const char *line_end = memchr(line, '\n', (size_t)(end - line));
    if (!line_end) line_end = end;
    if (read_line(line, line_end, name, uid, gid)) return NULL;
    line = line_end + (line_end < end);
  }
  errno = ENOENT;
  return "user in /etc/passwd";
}

const char *become_user(const char *user) {
  uint32_t uid = 0, gid = 0;
  if (read_number(user, user + strlen(user), &uid)) {
    gid = uid;
  } else {
    const char *failed = find_user(user, &uid, &gid);
    if (failed) return failed;
  }
  /* So that it can open its own /dev/stdout and terminal by name. A file that is already somebody's
   * stays so; a sandbox's root can do as much. */
  for (int fd = 0; fd < 3; fd++) (void)fchown(fd, uid, (gid_t)-1);
  if (setgroups(0, NULL)) return "setgroups";
  if (setresgid(gid, gid, gid)) return "setresgid";
  return setresuid(uid, uid, uid) ? "setresuid" : NULL;
}
