/* See walk.h. A level holds its directory open and the names that were read and not yet taken: going
 * back up costs nothing and trusts no `..`, which a program can make lead elsewhere. */
#include "walk.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int walk_enter(struct walk *walk, int directory) {
  if (walk->depth == WALK_DEPTH_MAX) {
    close(directory);
    errno = ENAMETOOLONG;
    return -1;
  }
  struct level *level = malloc(sizeof *level);
  if (!level) {
    close(directory);
    errno = ENOMEM;
    return -1;
  }
  level->fd = directory;
  level->used = level->at = 0;
  level->path_length = walk->path_length;
  walk->levels[walk->depth++] = level;
  return 0;
}

/* Makes a name of the directory at the bottom the entry at hand. */
static const char *take(struct walk *walk, const struct level *level, const char *name) {
  size_t length = strlen(name), at = level->path_length;
  if (length >= NAME_BYTES_MAX || at + 1 + length >= sizeof walk->path) {
    errno = ENAMETOOLONG;
    return NULL;
  }
  if (at) walk->path[at++] = '/';
  memcpy(walk->path + at, name, length + 1);
  walk->path_length = at + length;
  return walk->path + at;
}

const char *walk_next(struct walk *walk) {
  struct level *level = walk->levels[walk->depth - 1];
  for (;;) {
    if (level->at >= level->used) {
      errno = 0;
      level->at = 0;
      level->used = getdents64(level->fd, level->entries, sizeof level->entries);
      if (level->used < 0 && errno == ENOENT) level->used = errno = 0; /* it was removed meanwhile */
      if (level->used <= 0) return NULL;
    }
    const struct dirent64 *entry = (const struct dirent64 *)(level->entries + level->at);
    level->at += entry->d_reclen;
    if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
      return take(walk, level, entry->d_name);
  }
}

void walk_leave(struct walk *walk) {
  struct level *level = walk->levels[--walk->depth];
  walk->path_length = level->path_length;
  walk->path[walk->path_length] = 0;
  close(level->fd);
  free(level);
}

void walk_end(struct walk *walk) {
  while (walk->depth) walk_leave(walk);
  walk->path_length = 0;
  walk->path[0] = 0;
}

int walk_directory(const struct walk *walk) {
  return walk->depth ? walk->levels[walk->depth - 1]->fd : -1;
}

const char *walk_name(const struct walk *walk) {
  const char *slash = strrchr(walk->path, '/');
  return slash ? slash + 1 : walk->path;
}
