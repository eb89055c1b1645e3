/* Frozen layers, and the workers that make and compare them beside the launcher's own loop. */
#ifndef TILTYARD_SNAPSHOTS_H
#define TILTYARD_SNAPSHOTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "frames.h"
#include "rootfs.h"

#define SNAPSHOTS_MAX 256
/* Of what memory there is here, all snapshots may hold one part in so many. */
#define SNAPSHOTS_MEMORY_PART 4
#define SNAPSHOT_CHAIN_MAX 8 /* snapshots of forks of snapshots of ... */

/* The snapshot that this one was forked from; 0: none, or there is no such snapshot. */
uint32_t snapshot_below(uint32_t number);

/* Each returns NULL, or the name of the step that failed, with errno set. */

/* Keeps a snapshot's files where they are for as long as a sandbox stands on them. Of number 0 nothing
 * is kept. Refused when there is none, or when it is of another image or another way of writing. */
const char *snapshot_use(const struct rootfs *rootfs);
void snapshot_unuse(uint32_t number);
/* Frees the number now, and the files when nothing stands on them any more. */
const char *snapshot_drop(uint32_t number);

/* What a worker's end is told with. `failed` NULL: it went well. */
typedef void worker_told(struct text request, int error, const char *failed);

/* Starts a worker that copies a sandbox's layer into the new snapshot `number`. When all snapshots
 * would hold too much memory, now or in the end, the step is "memory for snapshots (N MiB)". */
const char *snapshot_take(struct text request, uint32_t number, const struct rootfs *of);
/* Starts a worker that writes what a sandbox changed into `into`. */
const char *differences_start(struct text request, const struct rootfs *of, int into);
/* False when the process was none of the workers. */
bool worker_ended(pid_t pid, int status, worker_told *tell);

#endif
