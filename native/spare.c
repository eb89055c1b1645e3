/* See spare.h.
 *
 * Network namespaces are the dearest part of a sandbox to make, so one is made beforehand, while there
 * is nothing else to do. It belongs to the launcher's user namespace, not to the sandbox's: nobody
 * inside is root of it, so only here can it be set up. The launcher's own is private too, for as an
 * ordinary user it could not return to the host's.
 */
#include "spare.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

static int own = -1, spare = -1;
static bool refused;

static int current(void) { return open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC); }

/* A launcher that stayed in a sandbox's namespace would make the next one's there: it ends instead,
 * and its sandboxes with it. */
static void come_back(void) {
  int error = errno;
  if (setns(own, CLONE_NEWNET)) _exit(1);
  errno = error;
}

const char *spare_set_up(void) {
  if (unshare(CLONE_NEWNET)) return "unshare(network)";
  own = current();
  return own < 0 ? "open(own network)" : NULL;
}

bool spare_wanted(void) { return spare < 0 && !refused; }

void spare_make(void) {
  if (spare >= 0) return;
  refused = unshare(CLONE_NEWNET) != 0;
  if (refused) return;
  spare = current();
  refused = spare < 0;
  come_back();
}

const char *spare_furnish(struct network *network) {
  if (network->mode == NETWORK_NONE) return NULL;
  spare_make();
  if (spare < 0) return "unshare(network)";
  if (!spare_enter()) return "setns(network)";
  const char *failed = network_make(network);
  come_back();
  if (failed) spare_drop();
  return failed;
}

bool spare_enter(void) {
  refused = false;
  return spare >= 0 && setns(spare, CLONE_NEWNET) == 0;
}

void spare_leave(void) {
  come_back();
  spare_drop();
}

void spare_drop(void) {
  int error = errno;
  if (spare >= 0) close(spare);
  spare = -1;
  errno = error;
}
