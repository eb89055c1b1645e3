/* Starting one program: its descriptors, its restrictions, and the report when it cannot start. */
#ifndef TILTYARD_START_H
#define TILTYARD_START_H

#include <stdbool.h>
#include <sys/types.h>

#include "frames.h"
#include "groups.h"
#include "restrict.h"
#include "terminal.h"

#define ARGUMENTS_MAX 65536u

struct start {
  char **argv, **env;
  char *cwd;
  char *user;     /* NULL: the sandbox's root */
  uint32_t flags; /* SPAWN_* */
  struct text input;
  struct terminal_size size;
  struct group_entry group;
};

/* The supervisor's ends of a program's streams; -1 where there is none. */
struct ends {
  int captures[3]; /* what is read: standard output or the terminal, standard error, the channel */
  int input;       /* what is written: a pipe that is its standard input, or the terminal again */
  int terminal;    /* the program's end of the terminal, only held: see terminal.c */
};

/* What a child that could not become its program writes to its report pipe. */
struct start_failure {
  int error;
  char call[60];
};

/* Takes the supervisor's own oom_score_adj. */
void start_set_up(int score);

/* Makes the near and far ends of standard output, standard error and the channel, in that order;
 * `channel_type` 0: no channel. False, with errno set and nothing left open, when it cannot. */
bool open_streams(int near[3], int far[3], int channel_type);

/* Starts the program. Returns NULL, or the call that failed with errno set and nothing left open.
 * `report` gets the pipe that is empty at its end when the start went well. */
const char *start_program(const struct start *start, const struct limits *limits, bool restrict_it,
                          struct ends *ends, int *report, pid_t *pid);

#endif
