/* File requests that may take long, answered in slices. See cursors.c for the theory. */
#ifndef TILTYARD_CURSORS_H
#define TILTYARD_CURSORS_H

#include "frames.h"
#include "inside.h"
#include "walk.h"

enum task { TASK_NONE, TASK_LIST, TASK_READ, TASK_REMOVE, TASK_WRITE };

struct cursor {
  enum task task;
  struct walk walk;
  int base;      /* REMOVE: the directory above; WRITE: the directory written into */
  int file;      /* READ, WRITE: whose content is passing */
  uint64_t left; /* of that content */
  /* REMOVE */
  bool recursive;
  uint64_t removed;
  uint32_t lifted;
  char name[NAME_BYTES_MAX];
  /* WRITE: of the entry at hand */
  uint64_t mtime_s;
  char path[PATH_BYTES_MAX];
};

/* The cursor of that number, cleared for a new task; NULL when there is no such number. */
struct cursor *cursor_begin(uint32_t number, enum task task);
/* The cursor of that number when it has that task; else NULL. */
struct cursor *cursor_of(uint32_t number, enum task task);
/* Closes all that it holds. */
void cursor_end(struct cursor *cursor);

/* Answers a request with a cursor; false when the frame is none. */
bool cursors_answer(struct outbox *outbox, const struct frame *frame);

#endif
