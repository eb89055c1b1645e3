/* See groups.h.
 *
 * Theory of operation. The launcher gives the sandbox's cgroup directories, but none of the files in
 * them, to the sandbox's root, and their descriptors to the supervisor. So the supervisor can make
 * directories below them and move its children there, and nobody inside can raise a limit: those are the
 * sandbox's own, which hold for everything below. Programs cannot reach any of it, because no cgroup file
 * system is mounted inside.
 *
 * Making a group and removing it costs a third of running a small program, so they are used again. The
 * host reads a group's counters when its execution has ended, and only then lets go of it; what it finds
 * there is compared with what it found before. A group in which something still runs is nobody's until
 * that has ended. The launcher removes them with the sandbox. Only cgroup v1 has this: there a thread
 * may move itself for free.
 */
#include "groups.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GROUPS_MAX 128 /* twice what may run at once; the rest is for what was left in the background */
#define MEMBERS_BYTES 4096

static struct group {
  struct group_entry entry;
  bool used;
} groups[GROUPS_MAX]; /* group n is at n - 1 */

static int trees[GROUP_TREES_MAX];
static int tree_count;
static uint32_t made;
static bool count_sockets;

struct group_entry group_none(void) {
  struct group_entry entry = {.number = 0};
  for (int i = 0; i < GROUP_TREES_MAX; i++) entry.tasks[i] = -1;
  return entry;
}

/* Out of the way of the programs' own. */
static int take(int fd) {
  int kept = fcntl(fd, F_DUPFD_CLOEXEC, 10);
  close(fd);
  return kept;
}

void groups_set_up(int first, int count, bool has_first, bool has_network) {
  count_sockets = has_network;
  struct group_entry entry = group_none();
  entry.number = 1;
  bool whole = count > 0;
  for (int i = 0; i < count; i++) {
    trees[i] = take(first + i);
    if (has_first) entry.tasks[i] = take(first + count + i);
    if (trees[i] < 0 || (has_first && entry.tasks[i] < 0)) whole = false;
  }
  if (!whole) return; /* the sandbox's own readings are all there is */
  tree_count = count;
  if (has_first) groups[made++] = (struct group){.entry = entry};
}

static const char *name_of(uint32_t number, const char *file) {
  static char name[64];
  snprintf(name, sizeof name, "e%u%s", number, file);
  return name;
}

/* The ids of what is in it, as far as they fit; -1 when they cannot be read. */
static ssize_t members(uint32_t number, char *text, size_t size) {
  int fd = openat(trees[0], name_of(number, "/cgroup.procs"), O_RDONLY | O_CLOEXEC);
  ssize_t got = fd < 0 ? -1 : read(fd, text, size - 1);
  if (fd >= 0) close(fd);
  text[got > 0 ? got : 0] = 0;
  return got;
}

/* v1 counts what connections hold only in groups that have a limit for it. The sandbox's own is what
 * holds; there is none below it in the tree that has no such file. */
static void limit_sockets(int tree, uint32_t number) {
  static const char most[] = "9223372036854771712";
  int fd = openat(tree, name_of(number, "/memory.kmem.tcp.limit_in_bytes"), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  (void)!write(fd, most, sizeof most - 1);
  close(fd);
}

static struct group *make(void) {
  if (!tree_count || made == GROUPS_MAX) return NULL;
  struct group_entry entry = group_none();
  entry.number = made + 1;
  for (int i = 0; i < tree_count; i++) {
    if (!mkdirat(trees[i], name_of(entry.number, ""), 0755) || errno == EEXIST)
      entry.tasks[i] = openat(trees[i], name_of(entry.number, "/tasks"), O_WRONLY | O_CLOEXEC);
    if (count_sockets) limit_sockets(trees[i], entry.number);
    if (entry.tasks[i] >= 0) continue;
    while (i-- > 0) close(entry.tasks[i]);
    return NULL; /* what was made so far is met again by the next attempt */
  }
  groups[made] = (struct group){.entry = entry};
  return &groups[made++];
}

struct group_entry group_use(void) {
  char text[8];
  struct group *found = NULL;
  for (uint32_t i = 0; i < made && !found; i++)
    if (!groups[i].used && members(i + 1, text, sizeof text) == 0) found = &groups[i];
  if (!found) found = make();
  if (!found) return group_none();
  found->used = true;
  return found->entry;
}

void group_release(uint32_t number) {
  if (number > 0 && number <= made) groups[number - 1].used = false;
}

const char *group_take(const struct group_entry *entry) {
  for (int i = 0; i < GROUP_TREES_MAX && entry->tasks[i] >= 0; i++)
    if (write(entry->tasks[i], "0", 1) != 1) return "write(cgroup tasks)";
  return NULL;
}

bool group_signal(uint32_t number, int signal_number) {
  static char text[MEMBERS_BYTES];
  if (number == 0 || number > made || members(number, text, sizeof text) <= 0) return false;
  bool any = false;
  /* Each line is whole but the last, when there are more than fit: they are met by the next pass. */
  for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
    int pid = atoi(line);
    if (pid <= 1) continue; /* 0: one of another pid namespace, which there is not */
    kill(pid, signal_number);
    any = true;
  }
  return any;
}
