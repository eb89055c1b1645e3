/* Copying a sandbox's own layer as it is, hostile names and all. */
#ifndef TILTYARD_COPYTREE_H
#define TILTYARD_COPYTREE_H

#include <stdint.h>

#define TREE_DEPTH_MAX 200

/* Copies what is in directory `from` into the empty directory `to`. Owners lose `first_id`. Sockets and
 * devices are left out, save the overlay's own marks of what was deleted. NULL, or the failed step
 * with errno set. Uses up to four descriptors a level. */
const char *copy_tree(int from, int to, uint32_t first_id);

#endif
