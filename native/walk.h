/* A walk through a directory tree that keeps its place, so that it can pause and go on. */
#ifndef TILTYARD_WALK_H
#define TILTYARD_WALK_H

#include <stddef.h>
#include <stdint.h>

#define WALK_DEPTH_MAX 64
#define NAME_BYTES_MAX 256u /* with the terminating zero or a slash */

struct level {
  int fd;
  long used, at;
  size_t path_length; /* of the directory itself, below the walk's start */
  _Alignas(8) char entries[4096];
};

struct walk {
  int depth;
  struct level *levels[WALK_DEPTH_MAX];
  size_t path_length;
  char path[WALK_DEPTH_MAX * NAME_BYTES_MAX]; /* of the entry at hand; every name has its place */
};

/* Goes down into a directory, which is the entry at hand or the walk's start, and takes the descriptor
 * over; closes it when it fails. */
int walk_enter(struct walk *walk, int directory);
/* The next name of the directory at the bottom, which becomes the entry at hand; NULL at its end, with
 * errno 0, or when reading fails. */
const char *walk_next(struct walk *walk);
/* Goes back up; the directory that was left is the entry at hand. */
void walk_leave(struct walk *walk);
/* Closes everything. */
void walk_end(struct walk *walk);
/* The directory at the bottom; -1 outside of any. */
int walk_directory(const struct walk *walk);
/* The last name of the entry at hand. */
const char *walk_name(const struct walk *walk);

#endif
