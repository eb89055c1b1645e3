/* What a program may do and use inside the sandbox: limits, capabilities, system calls. */
#ifndef TILTYARD_RESTRICT_H
#define TILTYARD_RESTRICT_H

#include <stdbool.h>
#include <stdint.h>

#include "frames.h"

struct limits {
  uint32_t wall_ms; /* 0: none */
  uint32_t cpu_s;   /* 0: none */
  uint64_t output_bytes_max;
  uint32_t open_files;
  uint32_t processes;
  uint64_t address_space_bytes; /* 0: none */
};

struct limits field_limits(struct fields *fields);

/* Each returns NULL, or the name of the call that failed, with errno set. */
const char *restrict_resources(const struct limits *limits);
/* Keeps, of the capabilities in the sandbox's user namespace, those that act on its own files,
 * users, processes and low ports; gives up every other for good. */
const char *restrict_capabilities(void);
const char *restrict_system_calls(void);

#endif
