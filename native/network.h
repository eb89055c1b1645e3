/* The network side of a sandbox: what the launcher sets up in the network namespace made for it. */
#ifndef TILTYARD_NETWORK_H
#define TILTYARD_NETWORK_H

#include <stdint.h>

#include "frames.h"

enum {
  NETWORK_NONE = 0,     /* loopback stays down */
  NETWORK_LOOPBACK = 1, /* loopback is up, and there is nothing else */
  NETWORK_PROXY = 2,    /* besides, a listening socket on it that the host's proxy accepts from */
};

struct network {
  uint32_t mode;
  uint32_t port;                     /* of NETWORK_PROXY, on 127.0.0.1 */
  uint64_t up_bytes_s, down_bytes_s; /* out of the sandbox and into it; 0: not limited */
  int fds[2];           /* with NETWORK_PROXY: the listening socket, a netlink socket; else -1 */
  const char *unshaped; /* the step that failed when the bandwidth is not held; NULL: it is */
  int unshaped_error;
};

/* Reads `u32 mode, u32 port, u64 up, u64 down`; sets `bad` when they make no sense. */
struct network field_network(struct fields *fields);

/* Called in the namespace, as the root that owns it. Returns NULL, or the name of the step that failed
 * with errno set. That bandwidth cannot be held is no failure here: whether to do without is the host's
 * choice. */
const char *network_make(struct network *network);
void network_close(struct network *network);

#endif
