/* Killing a process with all that descends from it. */
#ifndef TILTYARD_TREE_H
#define TILTYARD_TREE_H

#include <stdbool.h>
#include <sys/types.h>

/* Kills `leader`, its session and its descendants; with `alone`, everything but the caller. */
void tree_kill(pid_t leader, bool alone);

#endif
