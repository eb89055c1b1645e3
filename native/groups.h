/* A cgroup for each execution, below the sandbox's own: what it used, and who belongs to it. */
#ifndef TILTYARD_GROUPS_H
#define TILTYARD_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

#define GROUP_TREES_MAX 2 /* memory and CPU time, where they are counted apart */

struct group_entry {
  uint32_t number; /* 0: there is no group */
  int tasks[GROUP_TREES_MAX]; /* -1 behind the last; they stay the group's */
};

/* Takes descriptors, from `first` on: of the sandbox's own directories, `count` of them; none is no error.
 * With `has_first` the first group is there already, and as many follow by which a thread enters it. */
void groups_set_up(int first, int count, bool has_first, bool has_network);
struct group_entry group_none(void);
/* An empty group with what a child needs to enter it. Number 0 when none can be made: then the
 * sandbox's own readings are all there is. */
struct group_entry group_use(void);
/* In the child. NULL, or the failed step. */
const char *group_take(const struct group_entry *entry);
/* Signals everything in it. True when there was something. */
bool group_signal(uint32_t number, int signal_number);
/* The host has read its counters, or will not: another execution may have it, once it is empty. */
void group_release(uint32_t number);

#endif
