/* See frames.h. Everything received comes from the trusted host, yet is parsed as if it did not:
 * the same code is fuzzed, and a bug here would be a bug inside every sandbox. */
#include "frames.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static uint32_t load_u32(const uint8_t *at) {
  return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void store_u32(uint8_t *at, uint32_t value) {
  for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (8 * i));
}

struct fields fields_of(const struct frame *frame) {
  return (struct fields){.at = frame->body, .end = frame->body + frame->length, .bad = false};
}

static const uint8_t *take(struct fields *fields, size_t length) {
  if (fields->bad || (size_t)(fields->end - fields->at) < length) {
    fields->bad = true;
    return NULL;
  }
  const uint8_t *at = fields->at;
  fields->at += length;
  return at;
}

uint32_t field_u32(struct fields *fields) {
  const uint8_t *at = take(fields, 4);
  return at ? load_u32(at) : 0;
}

uint64_t field_u64(struct fields *fields) {
  uint64_t low = field_u32(fields);
  return low | (uint64_t)field_u32(fields) << 32;
}

struct text field_text(struct fields *fields) {
  uint32_t length = field_u32(fields);
  const uint8_t *at = take(fields, length);
  return at ? (struct text){(const char *)at, length} : (struct text){"", 0};
}

char *text_copy(struct text text) {
  if (memchr(text.bytes, 0, text.length)) return NULL;
  char *copy = malloc((size_t)text.length + 1);
  if (!copy) return NULL;
  memcpy(copy, text.bytes, text.length);
  copy[text.length] = 0;
  return copy;
}

char **field_strings(struct fields *fields, uint32_t count_max) {
  uint32_t count = field_u32(fields);
  if (fields->bad || count > count_max) {
    fields->bad = true;
    return NULL;
  }
  char **strings = calloc((size_t)count + 1, sizeof *strings);
  for (uint32_t i = 0; strings && i < count; i++) {
    struct text text = field_text(fields);
    if (fields->bad || !(strings[i] = text_copy(text))) {
      fields->bad = true;
      free_strings(strings);
      return NULL;
    }
  }
  if (!strings) fields->bad = true;
  return strings;
}

void free_strings(char **strings) {
  for (char **each = strings; strings && *each; each++) free(*each);
  free(strings);
}

static bool reserve(uint8_t **buffer, size_t *capacity, size_t wanted) {
  if (wanted <= *capacity) return true;
  size_t size = *capacity ? *capacity : 16384;
  while (size < wanted) size *= 2;
  uint8_t *grown = realloc(*buffer, size);
  if (!grown) return false;
  *buffer = grown;
  *capacity = size;
  return true;
}

int inbox_receive(struct inbox *inbox, int fd) {
  if (inbox->taken) {
    memmove(inbox->buffer, inbox->buffer + inbox->taken, inbox->used - inbox->taken);
    inbox->used -= inbox->taken;
    inbox->taken = 0;
  }
  size_t wanted = inbox->used + 65536;
  if (inbox->used >= FRAME_HEADER_BYTES) {
    /* inbox_next has refused a length over the maximum, so this is bounded. */
    size_t whole = FRAME_HEADER_BYTES + (size_t)load_u32(inbox->buffer);
    if (whole > wanted) wanted = whole;
  }
  if (!reserve(&inbox->buffer, &inbox->capacity, wanted)) return -1;
  ssize_t got = recv(fd, inbox->buffer + inbox->used, inbox->capacity - inbox->used, MSG_DONTWAIT);
  if (got > 0) {
    inbox->used += (size_t)got;
    return 1;
  }
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
  return -1;
}

int inbox_next(struct inbox *inbox, struct frame *frame) {
  size_t left = inbox->used - inbox->taken;
  if (left < FRAME_HEADER_BYTES) return 0;
  const uint8_t *at = inbox->buffer + inbox->taken;
  uint32_t length = load_u32(at);
  if (length > FRAME_BODY_BYTES_MAX || at[6] || at[7]) return -1;
  if (left < FRAME_HEADER_BYTES + (size_t)length) return 0;
  *frame = (struct frame){.type = at[4], .flags = at[5], .id = load_u32(at + 8),
                          .body = at + FRAME_HEADER_BYTES, .length = length};
  inbox->taken += FRAME_HEADER_BYTES + (size_t)length;
  return 1;
}

void outbox_frame2(struct outbox *outbox, uint8_t type, uint8_t flags, uint32_t id, const void *first,
                   size_t first_length, const void *second, size_t second_length) {
  size_t length = first_length + second_length;
  if (outbox->start == outbox->used) outbox->start = outbox->used = 0;
  if (outbox->used + FRAME_HEADER_BYTES + length > outbox->capacity && outbox->start) {
    memmove(outbox->buffer, outbox->buffer + outbox->start, outbox->used - outbox->start);
    outbox->used -= outbox->start;
    outbox->start = 0;
  }
  if (outbox->broken || length > FRAME_BODY_BYTES_MAX ||
      !reserve(&outbox->buffer, &outbox->capacity, outbox->used + FRAME_HEADER_BYTES + length)) {
    outbox->broken = true; /* the host sees the stream end, never a frame missing from it */
    return;
  }
  uint8_t *at = outbox->buffer + outbox->used;
  store_u32(at, (uint32_t)length);
  at[4] = type;
  at[5] = flags;
  at[6] = at[7] = 0;
  store_u32(at + 8, id);
  if (first_length) memcpy(at + FRAME_HEADER_BYTES, first, first_length);
  if (second_length) memcpy(at + FRAME_HEADER_BYTES + first_length, second, second_length);
  outbox->used += FRAME_HEADER_BYTES + length;
}

void outbox_frame(struct outbox *outbox, uint8_t type, uint8_t flags, uint32_t id, const void *body,
                  size_t length) {
  outbox_frame2(outbox, type, flags, id, body, length, NULL, 0);
}

void outbox_flush(struct outbox *outbox, int fd) {
  while (!outbox->broken && outbox->start < outbox->used) {
    ssize_t sent = send(fd, outbox->buffer + outbox->start, outbox->used - outbox->start,
                        MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      outbox->start += (size_t)sent;
    } else {
      if (errno != EAGAIN && errno != EINTR) outbox->broken = true;
      return;
    }
  }
}

size_t outbox_waiting(const struct outbox *outbox) { return outbox->used - outbox->start; }

void put_u32(struct body *body, uint32_t value) {
  if (body->length + 4 > sizeof body->bytes) return;
  store_u32(body->bytes + body->length, value);
  body->length += 4;
}

void put_u64(struct body *body, uint64_t value) {
  put_u32(body, (uint32_t)value);
  put_u32(body, (uint32_t)(value >> 32));
}

void put_text(struct body *body, const char *text) {
  size_t length = strlen(text), room = sizeof body->bytes - body->length;
  if (room < 4) return;
  if (length > room - 4) length = room - 4;
  put_u32(body, (uint32_t)length);
  memcpy(body->bytes + body->length, text, length);
  body->length += length;
}
