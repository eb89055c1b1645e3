/* Landlock as a second layer. */
#ifndef TILTYARD_LANDLOCK_H
#define TILTYARD_LANDLOCK_H

#include <stdbool.h>

/* Restricts this process and all that it starts, as far as this kernel can. NULL, or the failed step. */
const char *landlock_restrict(bool may_mount, bool has_network);

#endif
