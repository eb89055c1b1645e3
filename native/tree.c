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

struct process {
  pid_t pid, parent, session;
  bool doomed;
};

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
  int parent, group, session;
  char state;
  if (!rest || sscanf(rest + 1, " %c %d %d %d", &state, &parent, &group, &session) != 4) return false;
  *process = (struct process){.pid = atoi(name), .parent = parent, .session = session,
                              .doomed = false};
  return state != 'Z';
}

static int list_processes(struct process *list) {
  int count = 0;
  DIR *directory = opendir("/proc");
  if (!directory) return 0;
  for (struct dirent *entry; count < PROCESSES_MAX && (entry = readdir(directory));)
    if (isdigit((unsigned char)entry->d_name[0]) && read_process(entry->d_name, &list[count])) count++;
  closedir(directory);
  return count;
}

static int doom(struct process *list, int count, pid_t leader) {
  int doomed = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = 0; i < count; i++) {
      if (list[i].doomed || list[i].pid == getpid()) continue;
      bool found = list[i].pid == leader || list[i].session == leader;
      for (int j = 0; !found && j < count; j++) found = list[j].doomed && list[j].pid == list[i].parent;
      if (!found) continue;
      list[i].doomed = changed = true;
      doomed++;
    }
  }
  return doomed;
}

void tree_kill(pid_t leader, bool alone) {
  static struct process list[PROCESSES_MAX];
  if (alone) {
    kill(-1, SIGKILL);
    return;
  }
  for (int pass = 0; pass < PASSES_MAX; pass++) {
    int count = list_processes(list);
    if (doom(list, count, leader) == 0) return;
    for (int i = 0; i < count; i++)
      if (list[i].doomed) kill(list[i].pid, SIGKILL);
  }
}
