/* Feeds files to the frame parser as a host would over a socket, and parses every body's fields in
 * every way that the supervisor and the launcher do. Built with sanitizers by test_frames.py; it
 * prints each file's name before it begins with it, and must end well.
 *
 * A file: one byte, the size of the pieces that it is sent in (0: all at once), then the stream. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "frames.h"

static unsigned long seen;

static void touch(struct text text) {
  for (uint32_t i = 0; i < text.length; i++) seen += (unsigned char)text.bytes[i];
}

static void touch_strings(char **strings) {
  for (char **each = strings; strings && *each; each++) seen += strlen(*each);
  free_strings(strings);
}

static void parse(const struct frame *frame) {
  struct fields spawn = fields_of(frame);
  for (int i = 0; i < 7; i++) seen += field_u32(&spawn);
  seen += field_u64(&spawn);
  touch_strings(field_strings(&spawn, 65536));
  touch_strings(field_strings(&spawn, 64));
  char *cwd = text_copy(field_text(&spawn));
  if (cwd) seen += strlen(cwd);
  free(cwd);
  touch(field_text(&spawn));

  struct fields file = fields_of(frame);
  seen += field_u64(&file) + field_u32(&file);
  char *path = text_copy(field_text(&file));
  if (path) seen += strlen(path);
  free(path);
  touch(field_text(&file));
  while (!file.bad && file.at < file.end) touch(field_text(&file));

  struct fields strings = fields_of(frame);
  touch_strings(field_strings(&strings, 16));
  for (uint32_t i = 0; i < frame->length; i++) seen += frame->body[i];
}

static void answer(struct outbox *outbox, const struct frame *frame, int fd) {
  struct body body = {.length = 0};
  for (int i = 0; i < 70; i++) put_u32(&body, frame->id);
  put_text(&body, "a call that failed");
  outbox_frame(outbox, FRAME_EXIT, 0, frame->id, body.bytes, body.length);
  outbox_frame2(outbox, FRAME_BYTES, 1, frame->id, body.bytes, 8, frame->body, frame->length);
  outbox_flush(outbox, fd);
}

static int feed(const char *path) {
  FILE *file = fopen(path, "rb");
  int pair[2];
  printf("%s\n", path);
  fflush(stdout);
  if (!file || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 2;
  static unsigned char stream[4 << 20];
  int piece = fgetc(file);
  size_t length = fread(stream, 1, sizeof stream, file), sent = 0;
  fclose(file);
  struct inbox inbox = {0};
  struct outbox outbox = {0};
  bool open = true;
  while (open) {
    size_t wanted = piece > 0 ? (size_t)piece : length;
    if (wanted > length - sent) wanted = length - sent;
    ssize_t took = wanted ? send(pair[0], stream + sent, wanted, MSG_DONTWAIT) : 0;
    if (took > 0) sent += (size_t)took;
    if (sent == length) shutdown(pair[0], SHUT_WR);
    if (inbox_receive(&inbox, pair[1]) < 0) break;
    struct frame frame;
    int next;
    while ((next = inbox_next(&inbox, &frame)) > 0) {
      parse(&frame);
      answer(&outbox, &frame, pair[1]);
      static unsigned char replies[65536];
      while (recv(pair[0], replies, sizeof replies, MSG_DONTWAIT) > 0) {
      }
      if (outbox_waiting(&outbox) > (64u << 20)) return 3;
    }
    if (next < 0) open = false;
  }
  free(inbox.buffer);
  free(outbox.buffer);
  close(pair[0]);
  close(pair[1]);
  return 0;
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    int failed = feed(argv[i]);
    if (failed) return failed;
  }
  return argc > 1 && seen ? 0 : 2;
}
