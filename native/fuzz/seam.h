/* The world in which a C program is fuzzed. See seam.c. */
#ifndef TILTYARD_SEAM_H
#define TILTYARD_SEAM_H

#include <stddef.h>
#include <stdint.h>

/* The bytes of one input: `world` decides what the kernel and other processes do, `stream` is what
 * the host sends. */
struct seam_input {
  const uint8_t *world, *world_end;
  const uint8_t *stream, *stream_end;
};

/* Cuts an input into its two parts: u16 length of the world, the world, the stream. */
struct seam_input seam_cut(const uint8_t *bytes, size_t length);

/* Runs the program by `enter`, from fresh variables to its end, with an empty file tree, and takes
 * back all that it opened and allocated. `connection` is the descriptor that its host's end of the
 * socket is known by. With `left_max`, more blocks than that left allocated are a leak. */
void seam_run(struct seam_input input, int connection, void (*enter)(void), int left_max);

/* The program's own `main`. */
int under_main(int argc, char **argv);

/* The next choice of the world, less than `below`; 0, the ordinary case, when it has none left. */
uint32_t seam_choice(uint32_t below);

/* A descriptor that is the connection to the host, until the next run. */
int seam_connection(int wanted);

/* Makes a descriptor one of /dev/null. */
void seam_nothing_at(int fd);

#endif
