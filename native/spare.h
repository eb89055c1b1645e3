/* The network namespaces that lie ready for the launcher's next sandboxes. */
#ifndef TILTYARD_SPARE_H
#define TILTYARD_SPARE_H

#include <stdbool.h>

#include "network.h"

struct spare;

/* Gives the launcher a namespace of its own. Returns NULL, or the failed step with errno set. */
const char *spare_set_up(void);
/* Whether it is worth while to make one: not when it was refused since the last sandbox. */
bool spare_wanted(void);
/* Makes one when none lies ready; nothing happens when it cannot. */
void spare_make(void);
/* One that lies ready, or a new one; NULL, with errno set, when there is none. */
struct spare *spare_take(void);
/* Sets it up for a sandbox that wants more of a network than none. Returns NULL, or the failed step
 * with errno set. */
const char *spare_furnish(struct spare *spare, struct network *network);
/* Goes into it; false, with errno set, when that cannot be. */
bool spare_enter(struct spare *spare);
/* Comes back from it: whoever was made meanwhile has it now. */
void spare_leave(void);
/* NULL, with its descriptors closed, for one that will not be used again: it ends with its sandbox. */
struct spare *spare_kept(struct spare *spare);
/* Nobody is in it any more. It lies ready again when it cannot be told from a new one; else it goes. */
void spare_give_back(struct spare *spare);

#endif
