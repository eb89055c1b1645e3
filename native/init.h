/* tiltyard-init: pid 1 of a sandbox. */
#ifndef TILTYARD_INIT_H
#define TILTYARD_INIT_H

#include <stdbool.h>

/* Supervises the sandbox that this process is the first of, until the control socket ends. `score` is
 * its own /proc/self/oom_score_adj. Both descriptors are below 10. */
void init_run(int first_control, int score, bool for_zygotes, bool has_network) __attribute__((noreturn));

#endif
