/* The network namespace that lies ready for the launcher's next sandbox. */
#ifndef TILTYARD_SPARE_H
#define TILTYARD_SPARE_H

#include <stdbool.h>

#include "network.h"

/* Gives the launcher a namespace of its own. Returns NULL, or the failed step with errno set. */
const char *spare_set_up(void);
/* Whether it is worth while to make one: not when it was refused since the last sandbox. */
bool spare_wanted(void);
/* Makes one when there is none; nothing happens when it cannot. */
void spare_make(void);
/* Sets up the one for a sandbox that wants more of a network than none. Returns NULL, or the failed
 * step with errno set. */
const char *spare_furnish(struct network *network);
/* Goes into it; false, with errno set, when there is none to go into. */
bool spare_enter(void);
/* Comes back from it: whoever was made meanwhile has it now. */
void spare_leave(void);
/* Gives it up. */
void spare_drop(void);

#endif
