/* See tree.h.
 *
 * When the execution is the only one, kill(-1) takes everything at once and nothing escapes. With
 * others running beside it, descendants are found in /proc by parent and by session; a process that
 * left both (double fork and setsid, before this pass) lives until the sandbox ends.
 */
#include "tree.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROCESSES_MAX 4096
#define PASSES_MAX 8

enum fate { UNKNOWN, LOOKED_AT, SPARED, DOOMED };

struct process {
  pid_t pid, parent, session;
  enum fate fate;
};

static struct process list[PROCESSES_MAX];

static bool read_process(const char *name, struct process *process) {
  char path[64], stat[512];
  snprintf(path, sizeof path, "/proc/%s/stat", name);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t got = read(fd, stat, sizeof stat - 1);
  close(fd);
  if (got <= 0) return false;
  stat[got] = 0;
  /* The name in parentheses may hold anything: fields are counted from its last parenthesis. */
  const char *rest = strrchr(stat, ')');
  int parent, session, threads;
  char state;
  if (!rest || sscanf(rest + 1,
                      " %c %d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d", &state,
                      &parent, &session, &threads) != 4)
    return false;
  *process = (struct process){.pid = atoi(name), .parent = parent, .session = session,
                              .fate = UNKNOWN};
  /* One whose first thread has ended looks like a zombie while its other threads run on. */
  return state != 'Z' || threads > 1;
}

static int by_pid(const void *one, const void *other) {
  pid_t first = ((const struct process *)one)->pid, second = ((const struct process *)other)->pid;
  return (first > second) - (first < second);
}

static int list_processes(void) {
  int count = 0;
  DIR *directory = opendir("/proc");
  if (!directory) return 0;
  for (struct dirent *entry; count < PROCESSES_MAX && (entry = readdir(directory));)
    if (isdigit((unsigned char)entry->d_name[0]) && read_process(entry->d_name, &list[count])) count++;
  closedir(directory);
  qsort(list, (size_t)count, sizeof *list, by_pid);
  return count;
}

/* Decides one process and all above it. Each is looked at once, however deep programs nest. */
static void decide(int count, struct process *process, pid_t leader) {
  struct process *above = process;
  enum fate fate = UNKNOWN;
  while (fate == UNKNOWN) {
    if (above->fate != UNKNOWN) {
      fate = above->fate == DOOMED ? DOOMED : SPARED;
    } else if (above->pid == getpid()) {
      fate = SPARED;
    } else if (above->pid == leader || above->session == leader) {
      fate = DOOMED;
    } else {
      struct process key = {.pid = above->parent};
      above->fate = LOOKED_AT;
      above = bsearch(&key, list, (size_t)count, sizeof *list, by_pid);
      if (!above) fate = SPARED;
    }
  }
  /* The way up again, to write the answer on every process that had none. */
  if (above && above->fate == UNKNOWN) above->fate = fate;
  for (above = process; above && above->fate == LOOKED_AT;) {
    struct process key = {.pid = above->parent};
    above->fate = fate;
    above = bsearch(&key, list, (size_t)count, sizeof *list, by_pid);
  }
}

static int signal_all(pid_t leader, int number) {
  int count = list_processes(), doomed = 0;
  for (int i = 0; i < count; i++) decide(count, &list[i], leader);
  for (int i = 0; i < count; i++) {
    if (list[i].fate != DOOMED) continue;
    kill(list[i].pid, number);
    doomed++;
  }
  return doomed;
}

void tree_kill(pid_t leader, bool alone) {
  if (alone) {
    kill(-1, SIGKILL);
    return;
  }
  for (int pass = 0; pass < PASSES_MAX; pass++)
    if (signal_all(leader, SIGKILL) == 0) return;
}

void tree_signal(pid_t leader, int number) { signal_all(leader, number); }
