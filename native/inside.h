/* Paths of the sandbox, opened without ever leaving it. See inside.c for the theory. */
#ifndef TILTYARD_INSIDE_H
#define TILTYARD_INSIDE_H

#include <sys/stat.h>

#include "frames.h"

#define PATH_BYTES_MAX 4096u /* with the terminating zero, as the kernel counts */

/* Everything is resolved below `root` from now on. */
void inside_set_up(int root);

/* Opens a path below the root, which `..` and links cannot leave. */
int inside_open(const char *path, uint64_t flags, mode_t mode);
/* Opens a regular file of a real file system. `call` says what failed. */
int inside_open_regular(const char *path, uint64_t flags, mode_t mode, const char **call);
/* Opens the directory above a path's last name and finds that name; EINVAL when it has none. */
int inside_open_parent(const char *path, const char **name);
/* Makes the directories above a path, each resolved below the root. */
int inside_make_parents(const char *path);

/* Opens a path below a directory; it crosses no link, and a mount point only when `across`. */
int below_open(int directory, const char *path, uint64_t flags, mode_t mode, bool across);
/* The same for a regular file of a real file system. */
int below_open_regular(int directory, const char *path, uint64_t flags, mode_t mode, bool across);
/* True for /proc and /sys: what looks like a file there is a door to something else. */
bool is_unreal(int fd);

/* Reads a path into a buffer of PATH_BYTES_MAX; repeated and closing slashes are dropped. False, and
 * `fields` bad, when it is empty, too long or holds a NUL byte. */
bool field_path(struct fields *fields, char *path);
/* ERROR; `entry` NULL when the request names but one thing. */
void answer_error(struct outbox *outbox, uint32_t id, int error, const char *call, const char *entry);

#endif
