/* The file-system side of a sandbox: staged once by the launcher, put together by each child. */
#ifndef TILTYARD_ROOTFS_H
#define TILTYARD_ROOTFS_H

#include <stdbool.h>
#include <stdint.h>

/* Each returns NULL, or the name of the step that failed, with errno set. */

/* Mounts the launcher's private stage over the empty-enough directory `stage` and fills its /dev. */
const char *stage_set_up(const char *stage);

/* Reads an image's description from a memory file: records of `u32 kind, u32 mode, string path,
 * string argument`, where kind is one of IMAGE_*. */
const char *stage_image(uint32_t number, int description);

enum {
  IMAGE_DIRECTORY = 1, /* in every sandbox's own layer, so that its root may write there */
  IMAGE_LINK = 2,      /* argument: the target */
  IMAGE_FILE = 3,      /* argument: the content; shared, read-only */
  IMAGE_OWN_FILE = 4,  /* the same in every sandbox's own layer */
  IMAGE_BIND = 5,      /* argument: the host's directory, shown read-only */
  IMAGE_HIDE = 6,      /* argument: a directory or file below the latest bind that is to look empty */
};

struct rootfs {
  uint32_t image;
  uint64_t disk_bytes, inodes;
  bool for_zygotes;
};

/* In the child, inside its namespaces: builds the tree and makes it the root. */
const char *rootfs_enter(const struct rootfs *rootfs);

#endif
