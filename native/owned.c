/* See owned.h. Which directories and which limits, for cgroup v1, v2 or both, is the host's decision;
 * here they are only made, filled and removed. Making and removing them costs a fifth of a sandbox, so
 * where the host asks for it those that a dead one left empty stay, with their limits, for another
 * (docs/decisions/0015). Their counters then count on: what is read of them is compared with what was
 * read before, and a count of out-of-memory kills that is not 0 is nobody else's. */
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
#define FIRST_GROUP "e1" /* of the executions; the supervisor makes others when it needs them (groups.c) */
#define RETRY_MS 2
#define LAST_TRIES 2000

static struct owned *all;
static char **own_cgroups;
static const char *handed_on[CGROUPS_MAX]; /* by each of them, on v2; empty on v1 */

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
  for (int i = 0; cgroups[i]; i++) {
    char *end = strrchr(cgroups[i], '=');
    if (!end || i == CGROUPS_MAX) {
      errno = EINVAL;
      return "cgroup arguments";
    }
    *end = 0;
    handed_on[i] = end + 1;
    if (mkdir(cgroups[i], 0755)) return "mkdir(cgroup)";
  }
  return NULL;
}

static void close_layer(struct owned *owned) {
  if (owned->rootfs.layer >= 0) close(owned->rootfs.layer);
  owned->rootfs.layer = -1;
}

static void forget(struct owned *owned) {
  for (struct owned **at = &all; *at; at = &(*at)->next) {
    if (*at != owned) continue;
    *at = owned->next;
    break;
  }
  close_layer(owned);
  snapshot_unuse(owned->rootfs.snapshot);
  spare_give_back(owned->spare);
  free_strings(owned->cgroups);
  free_strings(owned->grouped);
  free(owned->oom_file);
  free(owned->pids_file);
  free(owned->memory_file);
  free(owned);
}

struct owned *owned_add(struct text id, struct fields *fields) {
  if (id.length == 0 || id.length >= SANDBOX_ID_BYTES) return NULL;
  struct owned *owned = calloc(1, sizeof *owned);
  if (!owned) return NULL;
  memcpy(owned->id, id.bytes, id.length);
  owned->rootfs.layer = -1;
  owned->deadline_us = now_us() + (uint64_t)field_u32(fields) * 1000000u;
  owned->there = field_u32(fields);
  owned->residue_bytes = field_u64(fields);
  owned->oom_file = text_copy(field_text(fields));
  owned->pids_file = text_copy(field_text(fields));
  owned->memory_file = text_copy(field_text(fields));
  owned->cgroups = field_strings(fields, CGROUPS_MAX);
  owned->grouped = field_strings(fields, GROUP_TREES_MAX);
  owned->next = all;
  all = owned;
  if (fields->bad || !owned->oom_file || !owned->pids_file || !owned->memory_file) {
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

static void remove_below(const char *path, void *context);

/* True when it is gone, and whatever was below it. */
static bool remove_directory(const char *path) {
  if (!rmdir(path) || errno == ENOENT) return true;
  each_below(path, remove_below, NULL);
  return !rmdir(path) || errno == ENOENT;
}

static void remove_below(const char *path, void *context) {
  (void)context;
  remove_directory(path);
}

static void remove_later_group(const char *path, void *context) {
  (void)context;
  if (strcmp(strrchr(path, '/') + 1, FIRST_GROUP)) remove_directory(path);
}

/* True when none of the directories is left. */
static bool remove_cgroups(char **cgroups) {
  bool left = false;
  for (char **each = cgroups; each && *each; each++)
    if (!remove_directory(*each)) left = true;
  return !left;
}

/* Somebody may have removed them, which nothing keeps there while no sandbox lives. The host had let
 * the first ones hand their controllers on. */
static const char *make_parents(void) {
  char path[STAGED_PATH_BYTES];
  for (int i = 0; own_cgroups[i]; i++) {
    if (mkdir(own_cgroups[i], 0755) || !*handed_on[i]) continue;
    snprintf(path, sizeof path, "%s/cgroup.subtree_control", own_cgroups[i]);
    if (write_to(path, handed_on[i])) return "write(cgroup.subtree_control)";
  }
  return NULL;
}

static const char *make_directory(const char *path) {
  if (!mkdir(path, 0755)) return NULL;
  const char *failed = errno == ENOENT ? make_parents() : "mkdir(cgroup)";
  if (failed) return failed;
  return mkdir(path, 0755) ? "mkdir(cgroup)" : NULL;
}

static const char *make_directories(const struct owned *owned) {
  char first[STAGED_PATH_BYTES];
  for (char **each = owned->cgroups; *each; each++) {
    const char *failed = make_directory(*each);
    if (failed) return failed;
  }
  /* Nobody else will have it otherwise, and each is some 170 KB of an idle sandbox. */
  for (char **each = owned->grouped; owned->residue_bytes && *each; each++) {
    snprintf(first, sizeof first, "%s/" FIRST_GROUP, *each);
    if (mkdir(first, 0755)) return "mkdir(cgroup)";
  }
  return NULL;
}

const char *owned_make_cgroups(struct owned *owned, struct fields *fields) {
  char **unused = field_strings(fields, SETTINGS_MAX);
  char **paths = field_strings(fields, SETTINGS_MAX), **values = field_strings(fields, SETTINGS_MAX);
  const char *failed = NULL;
  if (fields->bad) {
    errno = EINVAL;
    failed = "cgroup request";
  }
  if (!failed) remove_cgroups(unused); /* what stays is removed at the launcher's end */
  if (!failed && !owned->there) failed = make_directories(owned);
  for (int i = 0; !failed && paths[i] && values[i]; i++)
    if (write_to(paths[i], values[i])) failed = "write(cgroup limit)";
  int error = errno;
  free_strings(unused);
  free_strings(paths);
  free_strings(values);
  errno = error;
  return failed;
}

/* The directories become the sandbox's root's, the files in them do not. */
static const char *open_groups(const struct owned *owned, struct cgroup_entry *entry) {
  uint32_t root = owned->rootfs.first_id;
  char first[STAGED_PATH_BYTES];
  for (char **each = owned->grouped; *each; each++) {
    if (root && chown(*each, root, root)) return "chown(cgroup)";
    snprintf(first, sizeof first, "%s/" FIRST_GROUP "/tasks", *each);
    int fd = open(*each, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int tasks = entry->has_first && fd >= 0 ? open(first, O_WRONLY | O_CLOEXEC) : -1;
    entry->group[entry->groups] = fd;
    entry->first[entry->groups++] = tasks;
    if (fd < 0 || (entry->has_first && tasks < 0)) return "open(cgroup)";
  }
  return NULL;
}

/* Moving a process from outside makes the kernel wait for a grace period of several milliseconds. It
 * need not when a single thread of v1 moves itself, or when a child is born into its v2 cgroup. */
const char *owned_open_entry(const struct owned *owned, struct cgroup_entry *entry) {
  char path[4096];
  *entry = (struct cgroup_entry){.count = 0, .into = -1, .has_first = owned->residue_bytes};
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
  for (int i = 0; i < entry->groups; i++) {
    if (entry->group[i] >= 0) close(entry->group[i]);
    if (entry->first[i] >= 0) close(entry->first[i]);
  }
  if (entry->into >= 0) close(entry->into);
  *entry = (struct cgroup_entry){.count = 0, .into = -1};
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

/* Whether executions had more groups below it than the first. */
static bool has_later_groups(const char *directory) {
  struct stat about;
  return stat(directory, &about) || about.st_nlink > 3;
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
    if (has_later_groups(directory)) {
      each_below(directory, add_oom_kills, &kills);
    } else {
      strcpy(name, "/" FIRST_GROUP);
      add_oom_kills(directory, &kills);
    }
  }
  if (kills > owned->oom_kills) owned->oom_kills = kills;
}

/* -1 when it cannot be read. */
static int64_t number_in(const char *file) {
  char text[32];
  int fd = open(file, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t got = read(fd, text, sizeof text - 1);
  close(fd);
  if (got <= 0) return -1;
  text[got] = 0;
  return (int64_t)strtoull(text, NULL, 10);
}

/* Whether its cgroups are as good as new, and wanted. */
static bool keeps_cgroups(const struct owned *owned) {
  if (!owned->residue_bytes || owned->unheard || owned->oom_kills) return false;
  if (number_in(owned->pids_file) != 0) return false;
  int64_t held = number_in(owned->memory_file);
  if (held < 0 || (uint64_t)held > owned->residue_bytes) return false;
  for (char **each = owned->grouped; *each; each++)
    if (has_later_groups(*each)) each_below(*each, remove_later_group, NULL);
  return true;
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

int owned_sweep(void (*gone)(const struct owned *owned, bool kept), void (*other)(pid_t pid, int status)) {
  pid_t pid;
  int again = keep_deadlines(), status;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
    if (!mark_reaped(pid)) other(pid, status);
  for (struct owned *each = all, *next; each; each = next) {
    next = each->next;
    if (!each->reaped) continue;
    read_oom_kills(each);
    close_layer(each); /* what was written is charged to the cgroups until then */
    bool kept = keeps_cgroups(each);
    /* The kernel lets go of a cgroup a moment after the last process is reaped. */
    if (!kept && !remove_cgroups(each->cgroups)) {
      each->residue_bytes = 0; /* what is half removed is nobody's, also when it is empty by then */
      again = RETRY_MS;
      continue;
    }
    if (!each->unheard) gone(each, kept);
    forget(each);
  }
  return again;
}

static void say_nothing(const struct owned *owned, bool kept) {
  (void)owned;
  (void)kept;
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
