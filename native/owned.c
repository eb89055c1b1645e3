/* See owned.h. Which directories and which limits, for cgroup v1, v2 or both, is the host's decision;
 * here they are only made, filled and removed. */
#include "owned.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "executions.h"
#include "snapshots.h"
#include "stage.h"

#define SETTINGS_MAX 64
#define RETRY_MS 2
#define LAST_TRIES 2000

static struct owned *all;
static char **own_cgroups;

int write_to(const char *path, const char *value) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t wrote = write(fd, value, strlen(value));
  int error = errno;
  close(fd);
  errno = error;
  return wrote < 0 ? -1 : 0;
}

const char *owned_set_up(char **cgroups) {
  own_cgroups = cgroups;
  for (char **each = cgroups; *each; each++)
    if (mkdir(*each, 0755)) return "mkdir(cgroup)";
  return NULL;
}

static void forget(struct owned *owned) {
  for (struct owned **at = &all; *at; at = &(*at)->next) {
    if (*at != owned) continue;
    *at = owned->next;
    break;
  }
  if (owned->rootfs.layer >= 0) close(owned->rootfs.layer);
  snapshot_unuse(owned->rootfs.snapshot);
  free_strings(owned->cgroups);
  free_strings(owned->grouped);
  free(owned->oom_file);
  free(owned);
}

struct owned *owned_add(struct text id, struct fields *fields) {
  if (id.length == 0 || id.length >= SANDBOX_ID_BYTES) return NULL;
  struct owned *owned = calloc(1, sizeof *owned);
  if (!owned) return NULL;
  memcpy(owned->id, id.bytes, id.length);
  owned->rootfs.layer = -1;
  owned->deadline_us = now_us() + (uint64_t)field_u32(fields) * 1000000u;
  owned->oom_file = text_copy(field_text(fields));
  owned->cgroups = field_strings(fields, CGROUPS_MAX);
  owned->grouped = field_strings(fields, GROUP_TREES_MAX);
  owned->next = all;
  all = owned;
  if (fields->bad || !owned->oom_file) {
    forget(owned);
    errno = EINVAL;
    return NULL;
  }
  return owned;
}

struct owned *owned_find(struct text id) {
  for (struct owned *each = all; each; each = each->next)
    if (each->pid && strlen(each->id) == id.length && !memcmp(each->id, id.bytes, id.length)) return each;
  return NULL;
}

const char *owned_make_cgroups(struct owned *owned, struct fields *fields) {
  char **paths = field_strings(fields, SETTINGS_MAX), **values = field_strings(fields, SETTINGS_MAX);
  const char *failed = NULL;
  if (fields->bad) {
    errno = EINVAL;
    failed = "cgroup request";
  }
  for (char **each = owned->cgroups; !failed && *each; each++)
    if (mkdir(*each, 0755)) failed = "mkdir(cgroup)";
  for (int i = 0; !failed && paths[i] && values[i]; i++)
    if (write_to(paths[i], values[i])) failed = "write(cgroup limit)";
  int error = errno;
  free_strings(paths);
  free_strings(values);
  errno = error;
  return failed;
}

/* The directories become the sandbox's root's, the files in them do not. */
static const char *open_groups(const struct owned *owned, struct cgroup_entry *entry) {
  uint32_t root = owned->rootfs.first_id;
  for (char **each = owned->grouped; *each; each++) {
    if (root && chown(*each, root, root)) return "chown(cgroup)";
    int fd = open(*each, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return "open(cgroup)";
    entry->group[entry->groups++] = fd;
  }
  return NULL;
}

/* Moving a process from outside makes the kernel wait for a grace period of several milliseconds. It
 * need not when a single thread of v1 moves itself, or when a child is born into its v2 cgroup. */
const char *owned_open_entry(const struct owned *owned, struct cgroup_entry *entry) {
  char path[4096];
  *entry = (struct cgroup_entry){.count = 0, .into = -1};
  for (char **each = owned->cgroups; *each; each++) {
    snprintf(path, sizeof path, "%s/tasks", *each);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
      entry->tasks[entry->count++] = fd;
      continue;
    }
    if (errno != ENOENT || entry->into >= 0) return "open(cgroup tasks)";
    entry->into = open(*each, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (entry->into < 0) return "open(cgroup)";
  }
  return open_groups(owned, entry);
}

const char *entry_take(const struct cgroup_entry *entry) {
  for (int i = 0; i < entry->count; i++)
    if (write(entry->tasks[i], "0", 1) != 1) return "write(cgroup tasks)";
  return NULL;
}

void entry_close(struct cgroup_entry *entry) {
  for (int i = 0; i < entry->count; i++) close(entry->tasks[i]);
  for (int i = 0; i < entry->groups; i++) close(entry->group[i]);
  if (entry->into >= 0) close(entry->into);
  *entry = (struct cgroup_entry){.count = 0, .into = -1};
}

/* What is done to each directory below one; the sandbox's programs have none of them in sight. */
static void each_below(const char *path, void (*visit)(const char *below, void *context), void *context) {
  DIR *names = opendir(path);
  char below[STAGED_PATH_BYTES];
  for (struct dirent *name; names && (name = readdir(names));) {
    if (name->d_type != DT_DIR || name->d_name[0] == '.') continue;
    snprintf(below, sizeof below, "%s/%s", path, name->d_name);
    visit(below, context);
  }
  if (names) closedir(names);
}

static void remove_group(const char *path, void *context) {
  (void)context;
  rmdir(path);
}

/* True when none of the directories is left. */
static bool remove_cgroups(char **cgroups) {
  bool left = false;
  for (char **each = cgroups; each && *each; each++) {
    if (!rmdir(*each) || errno == ENOENT) continue;
    each_below(*each, remove_group, NULL);
    if (rmdir(*each) && errno != ENOENT) left = true;
  }
  return !left;
}

void owned_give_up(struct owned *owned) { owned->reaped = owned->unheard = true; }

static uint32_t oom_kills_in(const char *file) {
  static const char field[] = "oom_kill ";
  char table[512];
  uint32_t kills = 0;
  int fd = open(file, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t got = read(fd, table, sizeof table - 1);
  close(fd);
  table[got > 0 ? got : 0] = 0;
  for (char *line = table; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (!strncmp(line, field, sizeof field - 1))
      kills = (uint32_t)strtoul(line + sizeof field - 1, NULL, 10);
  }
  return kills;
}

static void add_oom_kills(const char *below, void *context) {
  char file[STAGED_PATH_BYTES];
  snprintf(file, sizeof file, "%s/memory.oom_control", below);
  *(uint32_t *)context += oom_kills_in(file);
}

/* Kept when the file has gone: a reading never becomes less true. v1 counts a kill only in the group of
 * whom it met. */
static void read_oom_kills(struct owned *owned) {
  if (!*owned->oom_file) return;
  char directory[STAGED_PATH_BYTES];
  snprintf(directory, sizeof directory, "%s", owned->oom_file);
  char *name = strrchr(directory, '/');
  uint32_t kills = oom_kills_in(owned->oom_file);
  if (name) {
    *name = 0;
    each_below(directory, add_oom_kills, &kills);
  }
  if (kills > owned->oom_kills) owned->oom_kills = kills;
}

static bool mark_reaped(pid_t pid) {
  for (struct owned *each = all; each; each = each->next) {
    if (each->pid != pid) continue;
    each->pid = 0;
    return each->reaped = true;
  }
  return false;
}

/* The dead man's: whatever has become of the host, this sandbox has lived long enough. Returns
 * milliseconds until the next one has, or -1 when there is none. */
static int keep_deadlines(void) {
  uint64_t now = now_us(), next = 0;
  for (struct owned *each = all; each; each = each->next) {
    if (!each->pid) continue;
    if (each->deadline_us <= now)
      kill(each->pid, SIGKILL);
    else if (!next || each->deadline_us < next)
      next = each->deadline_us;
  }
  uint64_t ms = (next - now) / 1000 + 1;
  return !next ? -1 : ms > INT_MAX ? INT_MAX : (int)ms;
}

int owned_sweep(void (*gone)(const char *id, uint32_t oom_kills), void (*other)(pid_t pid, int status)) {
  pid_t pid;
  int again = keep_deadlines(), status;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
    if (!mark_reaped(pid)) other(pid, status);
  for (struct owned *each = all, *next; each; each = next) {
    next = each->next;
    if (!each->reaped) continue;
    read_oom_kills(each);
    /* The kernel lets go of a cgroup a moment after the last process is reaped. */
    if (!remove_cgroups(each->cgroups)) {
      again = RETRY_MS;
      continue;
    }
    if (!each->unheard) gone(each->id, each->oom_kills);
    forget(each);
  }
  return again;
}

static void say_nothing(const char *id, uint32_t oom_kills) {
  (void)id;
  (void)oom_kills;
}

static void ignore(pid_t pid, int status) {
  (void)pid;
  (void)status;
}

void owned_end_all(void) {
  for (struct owned *each = all; each; each = each->next)
    if (each->pid) kill(each->pid, SIGKILL);
  for (int tries = 0; all && tries < LAST_TRIES; tries++) {
    owned_sweep(say_nothing, ignore);
    nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000}, NULL);
  }
  remove_cgroups(own_cgroups);
}
