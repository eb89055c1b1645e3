/* Feeds streams of file requests to the supervisor's own answers, below a directory given as root.
 * Built with sanitizers by test_file_answers.py; it prints each file's name before it begins with it.
 *
 * Each body is copied to memory of exactly its size, so that a read past a frame is found. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "executions.h"
#include "files.h"
#include "inside.h"

/* What the answers need of the supervisor's table of executions. */
uint64_t now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static unsigned char stream[4 << 20];
static unsigned long answered;

static bool feed(const char *path) {
  struct outbox outbox = {0};
  FILE *file = fopen(path, "rb");
  printf("%s\n", path);
  fflush(stdout);
  if (!file) return false;
  size_t length = fread(stream, 1, sizeof stream, file), at = 0;
  fclose(file);
  while (length - at >= FRAME_HEADER_BYTES) {
    uint32_t size;
    memcpy(&size, stream + at, 4);
    struct frame frame = {.type = stream[at + 4], .id = 1};
    at += FRAME_HEADER_BYTES;
    if (size > FRAME_BODY_BYTES_MAX || size > length - at) break;
    uint8_t *body = malloc(size ? size : 1);
    if (!body) return false;
    memcpy(body, stream + at, size);
    at += size;
    frame.body = body;
    frame.length = size;
    answered += files_answer(&outbox, &frame);
    free(body);
    if (outbox.broken) return false;
    outbox.start = outbox.used = 0;
  }
  free(outbox.buffer);
  return true;
}

int main(int argc, char **argv) {
  int root = argc > 1 ? open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
  if (root < 0) return 2;
  umask(0);
  inside_set_up(root);
  for (int i = 2; i < argc; i++)
    if (!feed(argv[i])) return 3;
  return answered ? 0 : 4;
}
