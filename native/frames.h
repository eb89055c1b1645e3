/* Frames in and out of one stream socket, and bounded reading of their fields. */
#ifndef TILTYARD_FRAMES_H
#define TILTYARD_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol.h"

struct frame {
  uint8_t type;
  uint8_t flags;
  uint32_t id;
  const uint8_t *body;
  uint32_t length;
};

/* Reads fields front to back. After the first field that does not fit, `bad` stays true and every
 * further field reads as zero or empty, so a parser checks once, at its end. */
struct fields {
  const uint8_t *at;
  const uint8_t *end;
  bool bad;
};

struct text {
  const char *bytes; /* not terminated */
  uint32_t length;
};

struct fields fields_of(const struct frame *frame);
uint32_t field_u32(struct fields *fields);
uint64_t field_u64(struct fields *fields);
struct text field_text(struct fields *fields);
/* Reads a list of strings into a new null-terminated array of new C strings; NULL when `bad`, when
 * a string holds a NUL byte, or when there are more than `count_max`. Free with `free_strings`. */
char **field_strings(struct fields *fields, uint32_t count_max);
void free_strings(char **strings);
/* A new C string of a text field, or NULL when it holds a NUL byte. */
char *text_copy(struct text text);

/* The incoming side: a buffer that grows to one frame at most. */
struct inbox {
  uint8_t *buffer;
  size_t used;     /* bytes received */
  size_t taken;    /* bytes of it already handed out as frames */
  size_t capacity;
};

/* Receives what is there. Returns 1 when something came, 0 when nothing did, -1 at the end of the
 * stream or on an error. */
int inbox_receive(struct inbox *inbox, int fd);
/* Takes the next whole frame, valid until the next receive. Returns 1, 0 when there is none yet, or
 * -1 when the stream breaks the protocol. */
int inbox_next(struct inbox *inbox, struct frame *frame);

/* The outgoing side: never blocks; what the socket does not take now is kept in order. */
struct outbox {
  uint8_t *buffer;
  size_t start, used, capacity;
  bool broken;
};

void outbox_frame(struct outbox *outbox, uint8_t type, uint8_t flags, uint32_t id, const void *body,
                  size_t length);
/* The same in two parts, for a body made of fields followed by bytes. */
void outbox_frame2(struct outbox *outbox, uint8_t type, uint8_t flags, uint32_t id, const void *first,
                   size_t first_length, const void *second, size_t second_length);
void outbox_flush(struct outbox *outbox, int fd);
size_t outbox_waiting(const struct outbox *outbox);

/* Composes small bodies. */
struct body {
  uint8_t bytes[256];
  size_t length;
};
void put_u32(struct body *body, uint32_t value);
void put_u64(struct body *body, uint64_t value);
void put_text(struct body *body, const char *text);

#endif
