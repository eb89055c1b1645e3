/* Pseudo-terminals of the sandbox's own devpts, for programs that want to talk with a person. */
#ifndef TILTYARD_TERMINAL_H
#define TILTYARD_TERMINAL_H

#include <stdint.h>

struct terminal_size {
  uint16_t rows, columns;
};

/* Opens a new one. `near` is the supervisor's end, non-blocking; `far` is the program's. Returns
 * NULL, or the call that failed with errno set and nothing left open. */
const char *terminal_open(struct terminal_size size, int *near, int *far);
/* Tells the terminal its size, and its foreground programs with SIGWINCH. */
void terminal_resize(int near, struct terminal_size size);
/* Makes descriptor 0 the controlling terminal of the caller, the leader of a new session. Returns
 * NULL, or the call that failed. */
const char *terminal_take(void);

#endif
