/* See spare.h.
 *
 * Network namespaces are the dearest part of a sandbox to make, and to remove: together a tenth of what
 * a sandbox costs. So one is made beforehand, while there is nothing else to do, and one that a sandbox
 * left as it found it is used again. It belongs to the launcher's user namespace, not to the sandbox's:
 * nobody inside is root of it, so only here can it be set up. The launcher's own is private too, for as
 * an ordinary user it could not return to the host's.
 *
 * What a sandbox could leave behind for the next: sockets, which end with its processes, unless they are
 * in flight in each other; leases of flow labels; and the kernel's counters, which any program may move
 * (a packet without a route is counted) and any may read. So a namespace is used again only if no socket
 * is left in it and every counter stands where it stood in the first one, before anybody used that. One
 * with interfaces that are up, or with anything else set up in it, is never used again. See
 * docs/decisions/0015.
 *
 * What the kernel does later would come too late for that look. It reports the IPv6 multicast groups of
 * a socket that has ended 10 ms after its end, and a second time after a second, even where no interface
 * is up, and counts the bytes: so many as there were groups. By the first version of that protocol it
 * reports none, so each namespace is told to keep to that.
 */
#include "spare.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "owned.h"

#define READY_MAX 32
#define WATCHED_MAX 64
#define WATCHED_DESCRIPTORS 7 /* that each has of the launcher's */
#define WATCHED_SHARE 4       /* all together no more than this part of those that it may have */
#define COUNTERS_BYTES_MAX 32768

static const char *const counters[] = {"snmp", "netstat", "snmp6", "dev", "ip6_flowlabel"};
#define COUNTERS ((int)(sizeof counters / sizeof *counters))

struct spare {
  int namespace;
  int counters[COUNTERS]; /* its files below /proc/net; -1: the kernel has no such */
  int sockets;            /* the file that counts them */
  bool was_used;
  bool used_up;           /* it will not be used again */
  struct spare *next;
};

static int own = -1;
static bool refused;
static struct spare *ready;
static int ready_count, watched, watched_max = WATCHED_MAX;
static char untouched[COUNTERS_BYTES_MAX];
static size_t untouched_bytes;

/* A launcher that stayed in a sandbox's namespace would make the next one's there: it ends instead,
 * and its sandboxes with it. */
static void come_back(void) {
  int error = errno;
  if (setns(own, CLONE_NEWNET)) _exit(1);
  errno = error;
}

static int open_own(const char *name) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/%s", name);
  return open(path, O_RDONLY | O_CLOEXEC);
}

static void discard(struct spare *spare) {
  int error = errno;
  if (spare->namespace >= 0) close(spare->namespace);
  if (spare->sockets >= 0) {
    close(spare->sockets);
    watched--;
  }
  for (int i = 0; i < COUNTERS; i++)
    if (spare->counters[i] >= 0) close(spare->counters[i]);
  free(spare);
  errno = error;
}

/* Everything that its counters say, one file behind the other; 0 when that cannot be read. */
static size_t read_counters(const struct spare *spare, char *text, size_t size) {
  size_t used = 0;
  for (int i = 0; i < COUNTERS; i++) {
    ssize_t got = 1;
    for (off_t at = 0; spare->counters[i] >= 0 && got > 0; at += got) {
      got = pread(spare->counters[i], text + used, size - used, at);
      if (got < 0) return 0;
      used += (size_t)got;
      if (used == size) return 0; /* more than there is room for */
    }
  }
  return used;
}

/* -1 when they cannot be counted. */
static int count_sockets(const struct spare *spare) {
  char text[64];
  int count;
  ssize_t got = pread(spare->sockets, text, sizeof text - 1, 0);
  if (got <= 0) return -1;
  text[got] = 0;
  return sscanf(text, "sockets: used %d", &count) == 1 ? count : -1;
}

static bool is_untouched(const struct spare *spare) {
  static char text[COUNTERS_BYTES_MAX];
  if (spare->used_up || !untouched_bytes || count_sockets(spare) != 0) return false;
  return read_counters(spare, text, sizeof text) == untouched_bytes && !memcmp(text, untouched, untouched_bytes);
}

/* In the new namespace. */
static void watch(struct spare *spare) {
  char path[64];
  spare->sockets = watched < watched_max ? open_own("net/sockstat") : -1;
  spare->used_up = spare->sockets < 0;
  if (spare->used_up) return;
  watched++;
  for (int i = 0; i < COUNTERS; i++) {
    snprintf(path, sizeof path, "net/%s", counters[i]);
    spare->counters[i] = open_own(path);
    if (spare->counters[i] < 0 && errno != ENOENT) spare->used_up = true;
  }
  if (!untouched_bytes) untouched_bytes = read_counters(spare, untouched, sizeof untouched);
}

/* In the new namespace. True when no report of multicast groups is still to come; see above. */
static bool report_no_groups(void) {
  if (!write_to("/proc/sys/net/ipv6/conf/lo/force_mld_version", "1")) return true;
  return errno == ENOENT; /* a kernel without IPv6 */
}

static struct spare *make(void) {
  struct spare *spare = calloc(1, sizeof *spare);
  if (!spare) return NULL;
  for (int i = 0; i < COUNTERS; i++) spare->counters[i] = -1;
  if (unshare(CLONE_NEWNET)) {
    int error = errno;
    free(spare);
    errno = error;
    return NULL;
  }
  spare->namespace = open_own("ns/net");
  int error = errno;
  watch(spare);
  if (!report_no_groups()) spare->used_up = true;
  errno = error;
  come_back();
  if (spare->namespace >= 0) return spare;
  discard(spare);
  return NULL;
}

/* Behind the others, so that the longest free is used first. */
static void lay_ready(struct spare *spare) {
  struct spare **end = &ready;
  while (*end) end = &(*end)->next;
  spare->next = NULL;
  *end = spare;
  ready_count++;
}

const char *spare_set_up(void) {
  if (unshare(CLONE_NEWNET)) return "unshare(network)";
  own = open_own("ns/net");
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files)) return "getrlimit";
  rlim_t most = files.rlim_cur / WATCHED_SHARE / WATCHED_DESCRIPTORS;
  if (most < WATCHED_MAX) watched_max = (int)most;
  return own < 0 ? "open(own network)" : NULL;
}

bool spare_wanted(void) { return !ready && !refused; }

void spare_make(void) {
  if (ready) return;
  struct spare *spare = make();
  refused = !spare;
  if (spare) lay_ready(spare);
}

struct spare *spare_take(void) {
  refused = false;
  for (struct spare *spare; (spare = ready);) {
    ready = spare->next;
    ready_count--;
    /* Once more: the kernel may have done something late for whom it belonged to. */
    if (!spare->was_used || is_untouched(spare)) return spare;
    discard(spare);
  }
  return make();
}

const char *spare_furnish(struct spare *spare, struct network *network) {
  spare->used_up = true;
  if (!spare_enter(spare)) return "setns(network)";
  const char *failed = network_make(network);
  come_back();
  return failed;
}

bool spare_enter(struct spare *spare) {
  if (setns(spare->namespace, CLONE_NEWNET) == 0) return true;
  spare->used_up = true;
  return false;
}

void spare_leave(void) { come_back(); }

struct spare *spare_kept(struct spare *spare) {
  if (!spare || !spare->used_up) return spare;
  discard(spare);
  return NULL;
}

void spare_give_back(struct spare *spare) {
  if (!spare) return;
  spare->was_used = true;
  if (ready_count < READY_MAX && is_untouched(spare))
    lay_ready(spare);
  else
    discard(spare);
}
