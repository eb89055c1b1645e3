/* The first process of a sandbox, from its clone until it goes on as tiltyard-init. */
#ifndef TILTYARD_CHILD_H
#define TILTYARD_CHILD_H

#include "owned.h"
#include "rootfs.h"

struct child {
  int control; /* its end of the control socket */
  int go;      /* a pipe that gives one byte when its ids are mapped; at its end it is given up */
  bool has_network;
};

/* Does not return. What fails is told on the control socket. */
void child_run(const struct rootfs *rootfs, const struct cgroup_entry *entry, struct child child)
    __attribute__((noreturn));

#endif
