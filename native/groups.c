/* See groups.h.
 *
 * Theory of operation. The launcher gives the sandbox's cgroup directories, but none of the files in
 * them, to the sandbox's root, and their descriptors to the supervisor. So the supervisor can make
 * directories below them and move its children there, and nobody inside can raise a limit: those are the
 * sandbox's own, which hold for everything below. Programs cannot reach any of it, because no cgroup file
 * system is mounted inside.
 *
 * Groups are numbered as they are made. The host reads a group's counters after its execution has ended
 * and then has it forgotten; one in which something still runs is tried again later. What is left at the
 * sandbox's end the launcher removes. Only cgroup v1 has this: there a thread may move itself for free.
 */
#include "groups.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORGOTTEN_MAX 1024

static int trees[GROUP_TREES_MAX];
static int tree_count;
static uint32_t made;
static bool count_sockets;
static uint32_t forgotten[FORGOTTEN_MAX]; /* to be removed; what finds no place waits for the end */
static int forgotten_count;

void groups_set_up(int first, int count, bool has_network) {
  count_sockets = has_network;
  for (int i = 0; i < count && i < GROUP_TREES_MAX; i++) {
    int kept = fcntl(first + i, F_DUPFD_CLOEXEC, 10);
    close(first + i);
    if (kept >= 0) trees[tree_count++] = kept;
  }
}

static const char *name_of(uint32_t number, const char *file) {
  static char name[64];
  snprintf(name, sizeof name, "e%u%s", number, file);
  return name;
}

static bool removed(uint32_t number) {
  bool gone = true;
  for (int i = 0; i < tree_count; i++)
    if (unlinkat(trees[i], name_of(number, ""), AT_REMOVEDIR) && errno != ENOENT) gone = false;
  return gone;
}

static void remove_forgotten(void) {
  int kept = 0;
  for (int i = 0; i < forgotten_count; i++)
    if (!removed(forgotten[i])) forgotten[kept++] = forgotten[i];
  forgotten_count = kept;
}

void group_forget(uint32_t number) {
  if (number == 0 || number > made) return;
  remove_forgotten();
  if (!removed(number) && forgotten_count < FORGOTTEN_MAX) forgotten[forgotten_count++] = number;
}

struct group_entry group_none(void) {
  struct group_entry entry = {.number = 0};
  for (int i = 0; i < GROUP_TREES_MAX; i++) entry.tasks[i] = -1;
  return entry;
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

struct group_entry group_make(void) {
  struct group_entry entry = group_none();
  if (!tree_count) return entry;
  entry.number = ++made;
  for (int i = 0; i < tree_count; i++) {
    if (!mkdirat(trees[i], name_of(entry.number, ""), 0755))
      entry.tasks[i] = openat(trees[i], name_of(entry.number, "/tasks"), O_WRONLY | O_CLOEXEC);
    if (count_sockets) limit_sockets(trees[i], entry.number);
    if (entry.tasks[i] >= 0) continue;
    group_close(&entry);
    removed(entry.number);
    entry.number = 0;
    break;
  }
  return entry;
}

const char *group_take(const struct group_entry *entry) {
  for (int i = 0; i < GROUP_TREES_MAX; i++)
    if (entry->tasks[i] >= 0 && write(entry->tasks[i], "0", 1) != 1) return "write(cgroup tasks)";
  return NULL;
}

void group_close(struct group_entry *entry) {
  for (int i = 0; i < GROUP_TREES_MAX; i++) {
    if (entry->tasks[i] >= 0) close(entry->tasks[i]);
    entry->tasks[i] = -1;
  }
}

bool group_signal(uint32_t number, int signal_number) {
  if (number == 0 || number > made) return false;
  int fd = openat(trees[0], name_of(number, "/cgroup.procs"), O_RDONLY | O_CLOEXEC);
  FILE *members = fd < 0 ? NULL : fdopen(fd, "r");
  if (!members) {
    if (fd >= 0) close(fd);
    return false;
  }
  bool any = false;
  int pid;
  while (fscanf(members, "%d", &pid) == 1) {
    if (pid <= 1) continue; /* 0: one of another pid namespace, which there is not */
    kill(pid, signal_number);
    any = true;
  }
  fclose(members);
  return any;
}
