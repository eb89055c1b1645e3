/* What the parts of the seam share. See seam.c. */
#ifndef TILTYARD_SEAM_WORLD_H
#define TILTYARD_SEAM_WORLD_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "protocol.h"
#include "seam.h"

#define PROCESSES_MAX 256

struct world {
  struct seam_input input;
  ino_t connection;
  int root;
  uint64_t now_us;
  bool dead[PROCESSES_MAX]; /* processes that never were: by number, from FIRST_PID */
  int processes;
  int reaped, sleeps;
  uint64_t sent; /* bytes of the frame that goes out now which have gone */
  uint32_t frame_bytes;
  uint8_t header[12];
  void *offered; /* the launcher's buffer for requests, which is a variable of its own */
  size_t offered_bytes;
};

extern struct world world;

_Noreturn void seam_fail(const char *what);
_Noreturn void seam_exit(int status);
bool seam_is_connection(int fd);
/* Says that the file tree is no longer as it was planted. */
void seam_touched(void);
/* A process that never was, or -1. */
pid_t seam_start(void);
int seam_open(const char *path, int flags, ...);

#endif
