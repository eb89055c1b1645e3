/* How much memory there is for this process. */
#ifndef TILTYARD_MEMORY_H
#define TILTYARD_MEMORY_H

#include <stdint.h>

/* The machine's, or the least that a cgroup of this process may have. */
uint64_t memory_bytes_here(void);

#endif
