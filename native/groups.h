/* A cgroup for each execution, below the sandbox's own: what it used, and who belongs to it. */
#ifndef TILTYARD_GROUPS_H
#define TILTYARD_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

#define GROUP_TREES_MAX 4

struct group_entry {
  uint32_t number; /* 0: there is no group */
  int tasks[GROUP_TREES_MAX];
};

/* Takes `count` descriptors, from `first` on, of the sandbox's own directories; none is no error. */
void groups_set_up(int first, int count, bool has_network);
struct group_entry group_none(void);
/* A new group with what a child needs to enter it. Without one, when none can be made: then the
 * sandbox's own readings are all there is. */
struct group_entry group_make(void);
/* In the child. NULL, or the failed step. */
const char *group_take(const struct group_entry *entry);
void group_close(struct group_entry *entry);
/* Signals everything in it. True when there was something. */
bool group_signal(uint32_t number, int signal_number);
/* Removes it, now or when what it started in the background has ended. */
void group_forget(uint32_t number);

#endif
