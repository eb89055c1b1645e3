/* Killing or signalling a process with all that descends from it. */
#ifndef TILTYARD_TREE_H
#define TILTYARD_TREE_H

#include <stdbool.h>
#include <sys/types.h>

/* Kills `leader`, its session and its descendants; with `alone`, everything but the caller. */
void tree_kill(pid_t leader, bool alone);
/* Sends a signal once to each of those that are found now. */
void tree_signal(pid_t leader, int number);

#endif
