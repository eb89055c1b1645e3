/* A sandbox's tree: planned and prepared by the launcher, put together by the sandbox's child. */
#ifndef TILTYARD_ROOTFS_H
#define TILTYARD_ROOTFS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define LOWERS_MAX 96
#define OVERLAYS_MAX 16
#define LOWER_PATH_BYTES 48

struct lower {
  char path[LOWER_PATH_BYTES]; /* below the stage */
  int tree; /* a detached copy that shows its owners as the sandbox's; -1: used where it is staged */
};

/* One overlay of the sandbox: its root, and where it may write to the image, one for each bind. */
struct overlay {
  const char *at;          /* in the sandbox; "" is its root */
  char upper[16];          /* the directory of the sandbox's own layer */
  int first_lower, lowers; /* topmost first */
};

struct rootfs {
  /* as asked for */
  uint32_t image;
  uint32_t snapshot; /* 0: none */
  uint64_t disk_bytes, inodes;
  bool for_zygotes, writable;
  uint32_t first_id; /* the host's id of the sandbox's root; 0 as an ordinary user */
  /* as planned */
  struct overlay overlays[OVERLAYS_MAX];
  int overlay_count;
  struct lower lower[LOWERS_MAX];
  int lower_count;
  int layer; /* the mount of its own tmpfs, which the launcher keeps to copy and compare from; -1 */
};

/* Each returns NULL, or the name of the step that failed, with errno set. */

/* Once, in the launcher: learns what of /proc there is to be hidden. */
const char *rootfs_set_up(void);
/* Says which overlays there will be, makes the sandbox's own layer, and takes copies of the lower
 * directories whose owners have to be shifted. `rootfs_close` gives all of it back but `layer`. */
const char *rootfs_prepare(struct rootfs *rootfs);
/* Shifts their owners into the user namespace of the sandbox's first process. */
const char *rootfs_shift(const struct rootfs *rootfs, pid_t pid);
void rootfs_close(struct rootfs *rootfs);

/* In the child, inside its namespaces: builds the tree and makes it the root. */
const char *rootfs_enter(const struct rootfs *rootfs);

/* A new, detached tmpfs whose root belongs to `owner`. -1 with errno. */
int layer_make(uint64_t disk_bytes, uint64_t inodes, uint32_t owner);

#endif
