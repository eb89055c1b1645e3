/* From a prepared sandbox to a running one: clone, id maps, cgroups, and the word to go on. */
#ifndef TILTYARD_BIRTH_H
#define TILTYARD_BIRTH_H

#include "network.h"
#include "owned.h"

/* Starts the first process of a sandbox whose tree is prepared. `fds` gets the host's end of its control
 * socket and its pidfd. NULL, or the name of the step that failed with errno set and nothing left. */
const char *birth(struct owned *owned, struct network *network, int fds[2]);

#endif
