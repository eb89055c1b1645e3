/* The table of executions, what is read from each, and how each ends. See exec.c for the theory. */
#ifndef TILTYARD_EXECUTIONS_H
#define TILTYARD_EXECUTIONS_H

#include <stdbool.h>
#include <sys/types.h>

#include "frames.h"
#include "restrict.h"

#define EXECUTIONS_MAX 64
#define EXIT_FORCED (EXIT_WALL | EXIT_OUTPUT | EXIT_KILLED | EXIT_INPUT | EXIT_IDLE)

enum { CAPTURE_STDOUT, CAPTURE_STDERR, CAPTURE_CHANNEL, CAPTURES };

struct execution {
  uint32_t id;
  bool used, zygote, forked, exited;
  pid_t pid; /* 0: the zygote has not answered yet */
  uint32_t zygote_id;
  int fds[CAPTURES]; /* -1: closed */
  int input;         /* standard input, when it is streamed, or the terminal; -1: none */
  int terminal;      /* the program's end of its terminal; -1: none */
  int report;        /* start failure of a spawned child: struct start_failure; -1 for a forked run */
  uint64_t totals[CAPTURES];
  struct limits limits;
  uint64_t started_us, deadline_us; /* deadline 0: none */
  uint64_t heard_us, idle_us; /* when it wrote last, and how long it may be silent; 0: for ever */
  uint32_t flags;
  uint32_t group; /* see groups.h; 0: none */
  uint8_t *given; /* what the host sent for its input, and is still waiting */
  size_t given_start, given_used;
  bool given_ends;
};

/* What an ended execution used, by the kernel's account. */
struct used {
  uint64_t user_us, system_us, peak_kib;
  uint64_t read_blocks, written_blocks; /* of 512 bytes, from and to real disks */
};

/* The whole table; entries that are not `used` mean nothing. */
extern struct execution executions[EXECUTIONS_MAX];

uint64_t now_us(void);
struct execution *execution_find(uint32_t id);
/* A new entry, or NULL when the table is full. */
struct execution *execution_add(uint32_t id, struct limits limits);
/* Says that an execution never came to be. */
void execution_refuse(struct outbox *outbox, uint32_t id, int error, const char *call);
/* Kills it with all that it started, and again until it is gone; `flag` 0 adds no reason. */
void execution_kill(struct execution *execution, uint32_t flag);
/* Whether it has written what was not read yet. */
bool execution_has_spoken(const struct execution *execution);
/* Reads one descriptor once. Returns bytes read, 0 at its end, -1 when there is nothing now. */
ssize_t execution_forward(struct outbox *outbox, struct execution *execution, int which);
/* Forwards what its pipes hold, says EXIT, and frees the entry. `used` NULL: not known. */
void execution_finish(struct outbox *outbox, struct execution *execution, int32_t status,
                      const struct used *used);
void close_fd(int *fd);

#endif
