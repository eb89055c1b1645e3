/* What a sandbox changed: its own layer compared with what lies below it. */
#ifndef TILTYARD_DIFFERENCES_H
#define TILTYARD_DIFFERENCES_H

#include "rootfs.h"

/* Writes a record for each file, link or directory that was added, changed or deleted:
 *
 *     u32 kind, u32 mode, u64 size, string path, u32 flags, string before, string after
 *
 * `kind` is one of DIFFERENCE_*. Mode and size are those of what is there now, or of what was deleted.
 * `before` and `after` are a file's bytes or a link's target; `flags` says which of them are there.
 * NULL, or the failed step with errno set. */
const char *differences_write(const struct rootfs *rootfs, int into);

enum { DIFFERENCE_ADDED = 1, DIFFERENCE_CHANGED = 2, DIFFERENCE_DELETED = 3 };
enum { DIFFERENCE_HAS_BEFORE = 1, DIFFERENCE_HAS_AFTER = 2, DIFFERENCE_LEFT_OUT = 4 };

#endif
