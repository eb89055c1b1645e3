/* The seam between a fuzzed program and everything that has an effect.
 *
 * Theory of operation. The programs are compiled as they are, every line of them. In their object
 * files each call out of them is then renamed by the rules of seam.txt: what only computes is kept,
 * what starts, kills, mounts or limits is answered here and never done, and what touches files is done
 * below one temporary directory. A call that no rule knows does not build. So it does not matter in
 * which file or function something is parsed, and nothing that an input asks for can happen.
 *
 * An input has two parts. The stream is what the host sends; the world decides, choice by choice, how
 * calls end, what programs print and when processes die: what hostile code could bring about. A run
 * is the program's own `main`, from its start to its end. Its variables are in sections of their own
 * and are set back before each run, so that one input means the same whatever ran before. */
#include "seam.h"

#include <errno.h>
#include <fcntl.h>
#include <sanitizer/asan_interface.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "seam_world.h"

#define FIRST_FD 10   /* below are the harness's own */
#define BLOCKS_MAX (1 << 20)
#define ROOT_FD 9
#define REMOVE_DEPTH_MAX 2100 /* a path has at most 4096 bytes */

/* The program's variables: the linker names the ends of sections whose names are C identifiers. */
extern uint64_t __start_under_data[], __stop_under_data[] __attribute__((weak));
extern uint64_t __start_under_bss[], __stop_under_bss[] __attribute__((weak));

struct world world;
static jmp_buf out;
static uintptr_t *blocks;
static size_t block_count;
static bool dirty;
static uint64_t *fresh_variables;

void seam_fail(const char *what) {
  fprintf(stderr, "seam: %s\n", what);
  abort();
}

uint32_t seam_choice(uint32_t below) {
  if (world.input.world == world.input.world_end || below < 2) return 0;
  return *world.input.world++ % below;
}

struct seam_input seam_cut(const uint8_t *bytes, size_t length) {
  if (length < 2) return (struct seam_input){bytes, bytes, bytes, bytes};
  size_t of_world = (size_t)bytes[0] | (size_t)bytes[1] << 8;
  if (of_world > length - 2) of_world = length - 2;
  const uint8_t *middle = bytes + 2 + of_world;
  return (struct seam_input){bytes + 2, middle, middle, bytes + length};
}

/* Not memcpy: between the variables lie bytes that AddressSanitizer lets nobody touch. */
__attribute__((no_sanitize_address)) static void copy_words(uint64_t *to, const uint64_t *from,
                                                            size_t count) {
  for (volatile uint64_t *each = to; count--; each++) *each = *from++;
}

static void fresh(bool keep) {
  size_t of_data = (size_t)(__stop_under_data - __start_under_data);
  size_t of_bss = (size_t)(__stop_under_bss - __start_under_bss);
  if (keep) {
    fresh_variables = malloc((of_data + of_bss) * sizeof *fresh_variables + 1);
    if (!fresh_variables) seam_fail("no memory");
    copy_words(fresh_variables, __start_under_data, of_data);
    copy_words(fresh_variables + of_data, __start_under_bss, of_bss);
  }
  copy_words(__start_under_data, fresh_variables, of_data);
  copy_words(__start_under_bss, fresh_variables + of_data, of_bss);
}

static void remove_below(int directory, int depth) {
  DIR *list = fdopendir(directory);
  if (!list || depth > REMOVE_DEPTH_MAX) seam_fail("cannot empty the file tree");
  for (struct dirent *entry; (entry = readdir(list));) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    if (!unlinkat(directory, entry->d_name, 0)) continue;
    int below = openat(directory, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (below < 0) {
      fchmodat(directory, entry->d_name, 0700, 0);
      below = openat(directory, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    if (below >= 0) remove_below(below, depth + 1);
    unlinkat(directory, entry->d_name, AT_REMOVEDIR);
  }
  closedir(list);
}

void seam_touched(void) { dirty = true; }

static void plant_tree(void) {
  static const char *const directories[] = {"tmp", "workspace", "stage", "cgroup", "proc", "proc/7"};
  static const char *const files[] = {"init", "proc/7/stat", "tmp/file"};
  for (size_t i = 0; i < sizeof directories / sizeof *directories; i++)
    mkdirat(ROOT_FD, directories[i], 0755);
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    int fd = openat(ROOT_FD, files[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, "content", 7) != 7) seam_fail("cannot fill the file tree");
    close(fd);
  }
  symlinkat("/", ROOT_FD, "tmp/up");
}


static void set_up(void) {
  char root_path[4096];
  const char *place = getenv("TMPDIR"); /* whoever set it removes what is in it, also after a crash */
  snprintf(root_path, sizeof root_path, "%s/tiltyard-fuzz-XXXXXX", place ? place : "/tmp");
  if (!mkdtemp(root_path)) seam_fail("cannot make a temporary directory");
  int root = open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (int fd = 3; fd < ROOT_FD; fd++)
    if (fcntl(fd, F_GETFD) < 0) seam_nothing_at(fd);
  if (root < 0 || (root != ROOT_FD && dup3(root, ROOT_FD, O_CLOEXEC) < 0))
    seam_fail("cannot take a descriptor");
  world.root = ROOT_FD;
  blocks = malloc(BLOCKS_MAX * sizeof *blocks);
  if (!blocks) seam_fail("no memory");
  dirty = true;
  fresh(true);
}

void seam_nothing_at(int fd) {
  int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing == fd) return;
  if (nothing < 0 || dup3(nothing, fd, O_CLOEXEC) < 0) seam_fail("cannot open /dev/null");
  close(nothing);
}

int seam_connection(int wanted) {
  int pair[2];
  struct stat about;
  if (!fresh_variables) set_up();
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) seam_fail("socketpair");
  close(pair[1]);
  if (pair[0] != wanted) {
    if (dup3(pair[0], wanted, O_CLOEXEC) < 0) seam_fail("dup3");
    close(pair[0]);
  }
  if (fstat(wanted, &about)) seam_fail("fstat");
  world.connection = about.st_ino;
  return wanted;
}

bool seam_is_connection(int fd) {
  struct stat about;
  return !fstat(fd, &about) && S_ISSOCK(about.st_mode) && about.st_ino == world.connection;
}

void seam_run(struct seam_input input, int connection, void (*enter)(void), int left_max) {
  if (dirty) {
    /* Opened anew: a copy of the descriptor would go on where the last listing stopped. */
    remove_below(openat(ROOT_FD, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0);
    plant_tree();
    dirty = false;
  }
  ino_t kept = world.connection;
  world = (struct world){.input = input, .connection = kept, .root = ROOT_FD, .now_us = 1000000};
  if (!setjmp(out)) enter();
  close(connection);
  close_range(FIRST_FD, ~0u, 0);
  if (world.offered) ASAN_UNPOISON_MEMORY_REGION(world.offered, world.offered_bytes);
  if (left_max && block_count > (size_t)left_max) {
    fprintf(stderr, "seam: %zu blocks were left allocated\n", block_count);
    abort();
  }
  while (block_count) free((void *)blocks[--block_count]);
  fresh(false);
}

/* What the program calls as exit and _exit. */
_Noreturn void seam_exit(int status) {
  (void)status;
  longjmp(out, 1);
}

_Noreturn void seam__exit(int status) { seam_exit(status); }

static void *remember(void *block) {
  if (!block) return NULL;
  if (block_count == BLOCKS_MAX) seam_fail("more blocks than anything needs");
  blocks[block_count++] = (uintptr_t)block;
  return block;
}

static void forget(uintptr_t block) {
  for (size_t i = block_count; block && i--;) {
    if (blocks[i] != block) continue;
    blocks[i] = blocks[--block_count];
    return;
  }
}

void *seam_malloc(size_t size) { return remember(malloc(size)); }
void *seam_calloc(size_t count, size_t size) { return remember(calloc(count, size)); }
char *seam_strdup(const char *text) { return remember(strdup(text)); }
char *seam_strndup(const char *text, size_t length) { return remember(strndup(text, length)); }

void *seam_realloc(void *block, size_t size) {
  uintptr_t before = (uintptr_t)block;
  void *grown = realloc(block, size);
  if (!grown) return NULL;
  forget(before);
  return remember(grown);
}

void seam_free(void *block) {
  forget((uintptr_t)block);
  free(block);
}
