/* See memory.h. In a container the machine's memory is not ours: what we write to a tmpfs counts for the
 * cgroup that we are in, and at its limit the kernel ends somebody. So the limits on the way up to the
 * root of that tree are asked, as far as they can be seen from here. */
#include "memory.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 4096
#define LINE_BYTES (3 * PATH_BYTES)

/* Where the tree of cgroups that holds memory is mounted, and which part of it. */
struct tree {
  char root[PATH_BYTES], point[PATH_BYTES];
  bool unified; /* version 2 */
};

static FILE *open_text(const char *path) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
  if (fd >= 0 && !file) close(fd);
  return file;
}

static bool lists(const char *words, const char *word) {
  size_t length = strlen(word);
  for (const char *at = words; (at = strstr(at, word)); at += length) {
    char before = at == words ? ',' : at[-1], after = at[length];
    if (before == ',' && (after == ',' || after == 0 || after == '\n')) return true;
  }
  return false;
}

/* One of version 1 that holds memory is preferred: where both are mounted, only one of them does. */
static bool find_tree(struct tree *tree) {
  FILE *mounts = open_text("/proc/self/mountinfo");
  static char line[LINE_BYTES];
  bool found = false;
  while (mounts && fgets(line, sizeof line, mounts)) {
    char kind[32] = "", options[1024] = "";
    struct tree seen = {.unified = false};
    const char *more = strstr(line, " - ");
    if (!more || sscanf(line, "%*s %*s %*s %4095s %4095s", seen.root, seen.point) != 2) continue;
    if (sscanf(more, " - %31s %*s %1023s", kind, options) != 2) continue;
    seen.unified = !strcmp(kind, "cgroup2");
    bool holds = !strcmp(kind, "cgroup") && lists(options, "memory");
    if (!holds && (!seen.unified || found)) continue;
    *tree = seen;
    found = true;
    if (holds) break;
  }
  if (mounts) fclose(mounts);
  return found;
}

/* Our own directory in it. */
static bool find_own(const struct tree *tree, char path[2 * PATH_BYTES]) {
  FILE *cgroups = open_text("/proc/self/cgroup");
  static char line[LINE_BYTES];
  bool found = false;
  while (cgroups && !found && fgets(line, sizeof line, cgroups)) {
    line[strcspn(line, "\n")] = 0;
    char *names = strchr(line, ':'), *own = names ? strchr(names + 1, ':') : NULL;
    if (!own) continue;
    *own++ = 0;
    if (tree->unified ? names[1] != 0 : !lists(names + 1, "memory")) continue;
    size_t shown = strcmp(tree->root, "/") ? strlen(tree->root) : 0;
    bool below = !strncmp(own, tree->root, shown);
    snprintf(path, 2 * PATH_BYTES, "%s%.*s", tree->point, PATH_BYTES - 1, below ? own + shown : "");
    found = true;
  }
  if (cgroups) fclose(cgroups);
  return found;
}

static uint64_t limit_of(const char *directory, const char *name) {
  char path[2 * PATH_BYTES + 64], said[32] = "";
  snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE *file = open_text(path);
  if (!file) return UINT64_MAX; /* the root of version 2 has none */
  bool read = fgets(said, sizeof said, file);
  fclose(file);
  return read && strncmp(said, "max", 3) ? strtoull(said, NULL, 10) : UINT64_MAX;
}

uint64_t memory_bytes_here(void) {
  uint64_t least = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
  static struct tree tree;
  static char path[2 * PATH_BYTES];
  if (!find_tree(&tree) || !find_own(&tree, path)) return least;
  const char *name = tree.unified ? "memory.max" : "memory.limit_in_bytes";
  for (size_t top = strlen(tree.point);;) {
    uint64_t limit = limit_of(path, name);
    if (limit < least) least = limit;
    char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) < top) return least;
    *slash = 0;
  }
}
