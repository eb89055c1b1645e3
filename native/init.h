/* tiltyard-init: pid 1 of a sandbox. */
#ifndef TILTYARD_INIT_H
#define TILTYARD_INIT_H

#include <stdbool.h>

/* What it is given; the descriptors are below 10. */
struct given {
  int control;
  int score;                /* its own /proc/self/oom_score_adj */
  int first_group, groups;  /* see groups_set_up */
  bool has_first, for_zygotes, has_network;
};

/* Supervises the sandbox that this process is the first of, until the control socket ends. */
void init_run(struct given given) __attribute__((noreturn));

#endif
