/* The launcher's private stage: what all sandboxes share, put there once. See rootfs.c. */
#ifndef TILTYARD_STAGE_H
#define TILTYARD_STAGE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define IMAGES_MAX 64
#define STAGED_PATH_BYTES 4096

enum {
  IMAGE_DIRECTORY = 1, /* in every sandbox's own layer, so that its root may write there */
  IMAGE_LINK = 2,      /* argument: the target */
  IMAGE_FILE = 3,      /* argument: the content; shared, read-only */
  IMAGE_OWN_FILE = 4,  /* the same in every sandbox's own layer */
  IMAGE_BIND = 5,      /* argument: the host's directory, shown read-only unless the sandbox may write */
  IMAGE_HIDE = 6,      /* argument: a directory or file below the latest bind that is to look empty */
};

/* One record of an image's description. */
struct entry {
  uint32_t kind, mode;
  char *path, *argument;
  uint32_t argument_bytes;
  struct entry *next;
};

/* Each of these returns NULL, or the name of the step that failed, with errno set. */

/* Mounts the stage over the empty-enough directory `stage` and fills its /dev. */
const char *stage_set_up(const char *stage);
/* Reads an image's description from a memory file: records of `u32 kind, u32 mode, string path,
 * string argument`, where kind is one of IMAGE_*. */
const char *stage_image(uint32_t number, int description);

/* The records of a staged image, in order; NULL when there is no such image. */
struct entry *image_entries(uint32_t number);

/* A path below the stage. The buffer is overwritten by the fourth call after it. */
const char *staged(const char *format, ...) __attribute__((format(printf, 1, 2)));
int write_file(const char *path, const char *bytes, size_t length, mode_t mode);
int set_mount_flags(const char *path, uint64_t flags);

#endif
