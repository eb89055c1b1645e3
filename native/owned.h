/* What the launcher owns: the sandboxes that live, and their cgroups. */
#ifndef TILTYARD_OWNED_H
#define TILTYARD_OWNED_H

#include <stdbool.h>
#include <sys/types.h>

#include "frames.h"
#include "groups.h"
#include "rootfs.h"
#include "spare.h"

#define SANDBOX_ID_BYTES 64

#define CGROUPS_MAX 16

struct cgroup_entry {
  int tasks[CGROUPS_MAX]; /* v1: the file by which a thread enters */
  int count;
  int group[GROUP_TREES_MAX]; /* directories below which the sandbox makes its executions' own */
  int first[GROUP_TREES_MAX]; /* of each, the file by which a thread enters the first of those */
  bool has_first;             /* that is there already */
  int groups;
  int into; /* v2: the directory to be cloned into; -1: none */
};

struct owned {
  char id[SANDBOX_ID_BYTES];
  pid_t pid;       /* 0: not started, or reaped */
  uint64_t deadline_us; /* on the monotonic clock; then it is killed */
  bool reaped;
  bool unheard;    /* it never started, so nobody waits to be told that it is gone */
  char **cgroups;  /* this sandbox's directories, one a hierarchy */
  char **grouped;  /* those of them below which each execution gets its own */
  char *oom_file;  /* where the kernel counts out-of-memory kills; empty: nowhere */
  char *pids_file, *memory_file; /* what is in them now; both empty where that is not known */
  uint64_t residue_bytes; /* they are another's afterwards when they hold no more; 0: never */
  bool there;      /* they are there already, limits and all, from another before */
  uint32_t oom_kills; /* as last read, before the file went */
  struct rootfs rootfs; /* its layer's descriptor, and its use of a snapshot, end with this */
  struct spare *spare;  /* its network namespace; NULL: it made one itself */
  struct owned *next;
};

/* Makes the launcher's own cgroup directories, parents of all sandboxes'. Each is given as `PATH=` with
 * what it hands on when it is made anew, as "+cpu +memory"; nothing on v1. NULL or the failed step. */
const char *owned_set_up(char **cgroups);
/* Takes up a new sandbox; reads `u32 seconds that it may live, u32 whether its cgroups are there,
 * u64 residue, strings oom file, pids file, memory file, list cgroup directories, list of those of them
 * below which executions get their own`. NULL when it cannot. */
struct owned *owned_add(struct text id, struct fields *fields);
/* One that lives; NULL when there is none. */
struct owned *owned_find(struct text id);
/* Removes a list of directories that nobody will use again; makes this sandbox's and sets their limits:
 * two lists of equal length, paths and values. */
const char *owned_make_cgroups(struct owned *owned, struct fields *fields);
/* Opens what a child needs to put itself into the cgroups; see owned.c. Close it with `entry_close`. */
const char *owned_open_entry(const struct owned *owned, struct cgroup_entry *entry);
/* In the child: the v1 part of entering. */
const char *entry_take(const struct cgroup_entry *entry);
void entry_close(struct cgroup_entry *entry);
/* Gives up a sandbox that did not start; the next sweep removes its cgroups. */
void owned_give_up(struct owned *owned);
/* Reaps what died; `other` is asked about a process that was no sandbox. Removes the cgroups of the
 * dead, or leaves them for another; tells each that is wholly gone. Kills what is past its deadline.
 * Returns milliseconds to wait before trying again, or -1 when there is nothing to wait for. */
int owned_sweep(void (*gone)(const struct owned *owned, bool kept), void (*other)(pid_t pid, int status));
/* Kills, reaps and removes everything, also the launcher's own cgroups. */
void owned_end_all(void);

/* Writes a small file of /proc or of a cgroup. -1 with errno when it cannot. */
int write_to(const char *path, const char *text);

#endif
