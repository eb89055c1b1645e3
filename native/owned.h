/* What the launcher owns: the sandboxes that live, and their cgroups. */
#ifndef TILTYARD_OWNED_H
#define TILTYARD_OWNED_H

#include <stdbool.h>
#include <sys/types.h>

#include "frames.h"

#define SANDBOX_ID_BYTES 64

struct owned {
  char id[SANDBOX_ID_BYTES];
  pid_t pid;       /* 0: not started, or reaped */
  bool reaped;
  char **cgroups;  /* this sandbox's directories, one a hierarchy */
  struct owned *next;
};

/* Makes the launcher's own cgroup directories, parents of all sandboxes'. NULL or the failed step. */
const char *owned_set_up(char **cgroups);
/* Takes up a new sandbox with the list of its cgroup directories; NULL when the request is bad. */
struct owned *owned_add(struct text id, struct fields *fields);
/* Makes the directories and sets their limits: two lists of equal length, paths and values. */
const char *owned_make_cgroups(struct owned *owned, struct fields *fields);
const char *owned_attach(struct owned *owned, pid_t pid);
/* Forgets a sandbox that did not start, with its cgroups. */
void owned_remove(struct owned *owned);
/* Reaps what died, removes its cgroups, and tells each that is wholly gone. Returns milliseconds to
 * wait before trying again, or -1 when nothing is left over. */
int owned_sweep(void (*gone)(const char *id));
/* Kills, reaps and removes everything, also the launcher's own cgroups. */
void owned_end_all(void);

#endif
