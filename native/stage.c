/* See stage.h. Everything here is done by the launcher alone, before any sandbox exists. */
#include "stage.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "frames.h"
#include "rootfs.h"

#define DESCRIPTION_BYTES_MAX (64u << 20)

static char stage_path[1024];
static struct entry *images[IMAGES_MAX];

const char *staged(const char *format, ...) {
  static char buffers[4][STAGED_PATH_BYTES];
  static int turn;
  char *buffer = buffers[turn++ % 4];
  int used = snprintf(buffer, STAGED_PATH_BYTES, "%s/", stage_path);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(buffer + used, (size_t)(STAGED_PATH_BYTES - used), format, arguments);
  va_end(arguments);
  return buffer;
}

int write_file(const char *path, const char *bytes, size_t length, mode_t mode) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return -1;
  ssize_t wrote = write(fd, bytes, length);
  if (close(fd) || wrote != (ssize_t)length) return -1;
  return 0;
}

int set_mount_flags(const char *path, uint64_t flags) {
  struct mount_attr attributes = {.attr_set = flags};
  return (int)syscall(SYS_mount_setattr, AT_FDCWD, path, 0, &attributes, sizeof attributes);
}

/* What the sandboxes of this launcher see instead of the machine's own, which would tell one host from
 * another. */
static const char *stage_boot_id(void) {
  uint8_t bytes[16];
  char text[40];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return "getrandom";
  bytes[6] = (uint8_t)((bytes[6] & 0x0f) | 0x40); /* a random UUID, RFC 9562 */
  bytes[8] = (uint8_t)((bytes[8] & 0x3f) | 0x80);
  for (int i = 0, at = 0; i < 16; i++)
    at += snprintf(text + at, sizeof text - (size_t)at, "%s%02x",
                   i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
  text[36] = '\n';
  return write_file(staged("boot-id"), text, 37, 0444) ? "create(boot-id)" : NULL;
}

static const char *stage_devices(void) {
  static const char *const devices[] = {"null", "zero", "full", "random", "urandom", "tty"};
  static const char *const links[][2] = {{"fd", "/proc/self/fd"}, {"stdin", "/proc/self/fd/0"},
                                         {"stdout", "/proc/self/fd/1"}, {"stderr", "/proc/self/fd/2"},
                                         {"ptmx", "pts/ptmx"}};
  if (mkdir(staged("dev"), 0755)) return "mkdir(dev)";
  if (mount("tiltyard-dev", staged("dev"), "tmpfs", MS_NOSUID | MS_NOEXEC, "size=64k,mode=0755"))
    return "mount(dev)";
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
    char source[64];
    snprintf(source, sizeof source, "/dev/%s", devices[i]);
    if (write_file(staged("dev/%s", devices[i]), "", 0, 0666)) return "create(device)";
    if (mount(source, staged("dev/%s", devices[i]), NULL, MS_BIND, NULL)) return "bind(device)";
    /* Its times and mode are the host's node's: read-only keeps those, and writes to it go on. */
    if (set_mount_flags(staged("dev/%s", devices[i]), MOUNT_ATTR_RDONLY))
      return "mount_setattr(device)";
  }
  for (size_t i = 0; i < sizeof links / sizeof *links; i++)
    if (symlink(links[i][1], staged("dev/%s", links[i][0]))) return "symlink(dev)";
  if (mkdir(staged("dev/pts"), 0755) || mkdir(staged("dev/shm"), 0755)) return "mkdir(dev/pts)";
  return set_mount_flags(staged("dev"), MOUNT_ATTR_RDONLY) ? "mount_setattr(dev)" : NULL;
}

const char *stage_set_up(const char *stage) {
  snprintf(stage_path, sizeof stage_path, "%s", stage);
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) return "mount(private)";
  if (mount("tiltyard-stage", stage, "tmpfs", MS_NOSUID | MS_NODEV, "size=256m,mode=0755"))
    return "mount(stage)";
  if (mkdir(staged("box"), 0755) || mkdir(staged("lower"), 0755) || mkdir(staged("empty"), 0555) ||
      write_file(staged("nothing"), "", 0, 0444))
    return "mkdir(stage)";
  for (int i = 0; i < LOWERS_MAX; i++)
    if (mkdir(staged("lower/%d", i), 0755)) return "mkdir(lower)";
  const char *failed = stage_boot_id();
  if (failed) return failed;
  /* Mounts of their own, so that what is bound from them is read-only wherever it goes: as an
   * ordinary user the sandbox's root owns them, and must not leave messages there for others. */
  static const char *const covers[] = {"empty", "nothing", "boot-id"};
  for (size_t i = 0; i < sizeof covers / sizeof *covers; i++) {
    const char *cover = staged("%s", covers[i]);
    if (mount(cover, cover, NULL, MS_BIND, NULL)) return "bind(cover)";
    if (set_mount_flags(cover, MOUNT_ATTR_RDONLY)) return "mount_setattr(cover)";
  }
  return stage_devices();
}

/* Makes the directories above a path of the lower directory or of a child's layer. */
static int make_parents(char *path, size_t from) {
  for (char *slash = path + from; (slash = strchr(slash + 1, '/'));) {
    *slash = 0;
    int made = mkdir(path, 0755);
    *slash = '/';
    if (made && errno != EEXIST) return -1;
  }
  return 0;
}

static const char *stage_bind(uint32_t number, int index, const struct entry *entry) {
  const char *point = staged("image-%u/bind-%d", number, index);
  if (mkdir(point, 0755) || mkdir(staged("image-%u/hide-%d", number, index), 0755)) return "mkdir(bind)";
  if (mount(entry->argument, point, NULL, MS_BIND, NULL)) return "bind(image)";
  if (set_mount_flags(point, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV))
    return "mount_setattr(image)";
  return NULL;
}

/* Puts emptiness over a directory or a file, and a whiteout into the layer that lies over the bind
 * where a sandbox may write: an overlay does not see what is mounted inside its lower directories. */
static const char *hide(uint32_t number, int bind, const char *argument) {
  const char *path = staged("image-%u/bind-%d/%s", number, bind, argument);
  struct stat about;
  if (lstat(path, &about)) return "lstat(hidden)";
  const char *cover = S_ISDIR(about.st_mode) ? staged("empty") : staged("nothing");
  if (mount(cover, path, NULL, MS_BIND, NULL)) return "bind(hidden)";
  char whiteout[STAGED_PATH_BYTES];
  int used = snprintf(whiteout, sizeof whiteout, "%s/image-%u/hide-%d", stage_path, number, bind);
  snprintf(whiteout + used, sizeof whiteout - (size_t)used, "/%s", argument);
  if (make_parents(whiteout, (size_t)used)) return "mkdir(whiteout)";
  return mknod(whiteout, S_IFCHR, 0) ? "mknod(whiteout)" : NULL;
}

static const char *stage_entry(uint32_t number, struct entry *entry, int *binds) {
  char path[STAGED_PATH_BYTES];
  int used = snprintf(path, sizeof path, "%s/image-%u/lower", stage_path, number);
  if (entry->path[0] != '/' || strstr(entry->path, "..")) {
    errno = EINVAL;
    return "image path";
  }
  snprintf(path + used, sizeof path - (size_t)used, "%s", entry->path);
  switch (entry->kind) {
    case IMAGE_LINK:
      if (make_parents(path, (size_t)used) || symlink(entry->argument, path)) return "symlink(image)";
      return NULL;
    case IMAGE_FILE:
      if (make_parents(path, (size_t)used) ||
          write_file(path, entry->argument, entry->argument_bytes, entry->mode))
        return "create(image)";
      return NULL;
    case IMAGE_BIND:
      if (make_parents(path, (size_t)used) || (mkdir(path, 0755) && errno != EEXIST))
        return "mkdir(image)";
      return stage_bind(number, (*binds)++, entry);
    case IMAGE_HIDE:
      return *binds ? hide(number, *binds - 1, entry->argument) : "image entry";
    case IMAGE_DIRECTORY:
    case IMAGE_OWN_FILE: return NULL; /* each child's own */
    default: errno = EINVAL; return "image entry";
  }
}

static const char *read_entries(uint32_t number, struct fields *fields) {
  int binds = 0;
  struct entry **end = &images[number];
  while (fields->at < fields->end) {
    struct entry *entry = calloc(1, sizeof *entry);
    if (!entry) return "memory";
    entry->kind = field_u32(fields);
    entry->mode = field_u32(fields);
    entry->path = text_copy(field_text(fields));
    struct text argument = field_text(fields);
    entry->argument = malloc((size_t)argument.length + 1);
    if (fields->bad || !entry->path || !entry->argument) {
      errno = EINVAL;
      return "image description";
    }
    memcpy(entry->argument, argument.bytes, argument.length);
    entry->argument[argument.length] = 0;
    entry->argument_bytes = argument.length;
    const char *failed = stage_entry(number, entry, &binds);
    if (failed) return failed;
    *end = entry;
    end = &entry->next;
  }
  return NULL;
}

const char *stage_image(uint32_t number, int description) {
  off_t length = lseek(description, 0, SEEK_END);
  if (number >= IMAGES_MAX || images[number] || length <= 0 || length > (off_t)DESCRIPTION_BYTES_MAX) {
    errno = EINVAL;
    return "image number";
  }
  uint8_t *bytes = malloc((size_t)length);
  if (!bytes || pread(description, bytes, (size_t)length, 0) != length) {
    free(bytes);
    return "read(image)";
  }
  struct fields fields = {.at = bytes, .end = bytes + length, .bad = false};
  const char *failed = NULL;
  if (mkdir(staged("image-%u", number), 0755) || mkdir(staged("image-%u/lower", number), 0755))
    failed = "mkdir(image)";
  if (!failed) failed = read_entries(number, &fields);
  free(bytes);
  return failed;
}

struct entry *image_entries(uint32_t number) { return number < IMAGES_MAX ? images[number] : NULL; }
