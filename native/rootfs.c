/* See rootfs.h.
 *
 * Theory of operation. The launcher lives in a mount namespace of its own. There it stages, once:
 * a minimal /dev, and for each image the lower directory of the overlay and read-only binds of the
 * host's directories. A child's mount namespace is a copy of the launcher's, so it finds all of that
 * ready; it adds a size-limited tmpfs for its own layer, joins everything below one overlay, pivots
 * into it and drops the rest. Nothing of this exists on a disk or in the host's own mount
 * namespace, so there is nothing to clean up when the launcher or a child dies at any point.
 */
#include "rootfs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "frames.h"

#define IMAGES_MAX 64
#define PATH_MAX_BYTES 4096
#define DESCRIPTION_BYTES_MAX (64u << 20)

struct entry {
  uint32_t kind, mode;
  char *path, *argument;
  uint32_t argument_bytes;
  struct entry *next;
};

static char stage_path[1024];
static struct entry *images[IMAGES_MAX]; /* what each child still has to do, in order */

/* A path below the stage. The buffer is the caller's next call away from being overwritten. */
static const char *staged(const char *format, ...) {
  static char buffers[4][PATH_MAX_BYTES];
  static int turn;
  char *buffer = buffers[turn++ % 4];
  int used = snprintf(buffer, PATH_MAX_BYTES, "%s/", stage_path);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(buffer + used, (size_t)(PATH_MAX_BYTES - used), format, arguments);
  va_end(arguments);
  return buffer;
}

static int write_file(const char *path, const char *bytes, size_t length, mode_t mode) {
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return -1;
  ssize_t wrote = write(fd, bytes, length);
  if (close(fd) || wrote != (ssize_t)length) return -1;
  return 0;
}

static int set_read_only(const char *path, uint64_t flags, bool recursive) {
  struct mount_attr attributes = {.attr_set = flags};
  return (int)syscall(SYS_mount_setattr, AT_FDCWD, path, recursive ? AT_RECURSIVE : 0, &attributes,
                      sizeof attributes);
}

/* Attaches a copy of a staged mount, with what is mounted below it, at `target`. */
static int attach_copy(const char *source, const char *target) {
  int tree = (int)syscall(SYS_open_tree, AT_FDCWD, source,
                          OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
  if (tree < 0) return -1;
  int moved = (int)syscall(SYS_move_mount, tree, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH);
  int error = errno;
  close(tree);
  errno = error;
  return moved;
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
    if (set_read_only(staged("dev/%s", devices[i]), MOUNT_ATTR_RDONLY, false))
      return "mount_setattr(device)";
  }
  for (size_t i = 0; i < sizeof links / sizeof *links; i++)
    if (symlink(links[i][1], staged("dev/%s", links[i][0]))) return "symlink(dev)";
  if (mkdir(staged("dev/pts"), 0755) || mkdir(staged("dev/shm"), 0755)) return "mkdir(dev/pts)";
  return set_read_only(staged("dev"), MOUNT_ATTR_RDONLY, false) ? "mount_setattr(dev)" : NULL;
}

const char *stage_set_up(const char *stage) {
  snprintf(stage_path, sizeof stage_path, "%s", stage);
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) return "mount(private)";
  if (mount("tiltyard-stage", stage, "tmpfs", MS_NOSUID | MS_NODEV, "size=256m,mode=0755"))
    return "mount(stage)";
  if (mkdir(staged("box"), 0755) || mkdir(staged("empty"), 0555) ||
      write_file(staged("nothing"), "", 0, 0444))
    return "mkdir(stage)";
  /* Mounts of their own, so that what is bound from them is read-only wherever it goes: as an
   * ordinary user the sandbox's root owns them, and must not leave messages there for others. */
  for (int i = 0; i < 2; i++) {
    const char *cover = staged(i ? "nothing" : "empty");
    if (mount(cover, cover, NULL, MS_BIND, NULL)) return "bind(cover)";
    if (set_read_only(cover, MOUNT_ATTR_RDONLY, false)) return "mount_setattr(cover)";
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
  if (mkdir(point, 0755)) return "mkdir(bind)";
  if (mount(entry->argument, point, NULL, MS_BIND, NULL)) return "bind(image)";
  if (set_read_only(point, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, false))
    return "mount_setattr(image)";
  return NULL;
}

/* Puts emptiness over a directory or a file. */
static const char *hide(const char *path) {
  struct stat about;
  if (lstat(path, &about)) return "lstat(hidden)";
  const char *cover = S_ISDIR(about.st_mode) ? staged("empty") : staged("nothing");
  return mount(cover, path, NULL, MS_BIND, NULL) ? "bind(hidden)" : NULL;
}

static const char *stage_entry(uint32_t number, struct entry *entry, int *binds) {
  char path[PATH_MAX_BYTES];
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
      return hide(staged("image-%u/bind-%d/%s", number, *binds - 1, entry->argument));
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

/* The sandbox's own layer: what its root may write from the start. */
static const char *fill_layer(uint32_t image) {
  char path[PATH_MAX_BYTES];
  int used = snprintf(path, sizeof path, "%s/box/up", stage_path);
  for (struct entry *entry = images[image]; entry; entry = entry->next) {
    snprintf(path + used, sizeof path - (size_t)used, "%s", entry->path);
    if (entry->kind == IMAGE_DIRECTORY) {
      if (mkdir(path, 0755) && errno != EEXIST) return "mkdir(layer)";
      if ((entry->mode & 07777) != 0755 && chmod(path, entry->mode & 07777)) return "chmod(layer)";
    } else if (entry->kind == IMAGE_OWN_FILE) {
      if (write_file(path, entry->argument, entry->argument_bytes, entry->mode)) return "create(layer)";
    }
  }
  return NULL;
}

static const char *mount_proc(bool masked) {
  static const char *const hidden_directories[] = {"acpi", "asound", "scsi", "fs", "irq", "bus"};
  static const char *const hidden_files[] = {"kcore", "keys", "key-users", "kmsg", "kallsyms",
                                             "sysrq-trigger", "timer_list", "sched_debug",
                                             "latency_stats", "modules", "interrupts"};
  if (mount("proc", staged("box/root/proc"), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL))
    return "mount(proc)";
  if (!masked) return NULL;
  for (size_t i = 0; i < sizeof hidden_directories / sizeof *hidden_directories; i++)
    if (mount(staged("empty"), staged("box/root/proc/%s", hidden_directories[i]), NULL, MS_BIND, NULL) &&
        errno != ENOENT)
      return "bind(proc)";
  for (size_t i = 0; i < sizeof hidden_files / sizeof *hidden_files; i++)
    if (mount(staged("dev/null"), staged("box/root/proc/%s", hidden_files[i]), NULL, MS_BIND, NULL) &&
        errno != ENOENT)
      return "bind(proc)";
  /* Root inside owns the supervisor's entries, and could give it a bad name with the kernel
   * (oom_score_adj, autogroup); nobody inside has business with them. */
  if (mount(staged("empty"), staged("box/root/proc/1"), NULL, MS_BIND, NULL)) return "bind(proc/1)";
  const char *settings = staged("box/root/proc/sys");
  if (mount(settings, settings, NULL, MS_BIND, NULL)) return "bind(proc/sys)";
  return set_read_only(settings, MOUNT_ATTR_RDONLY, false) ? "mount_setattr(proc/sys)" : NULL;
}

static const char *mount_overlay(const struct rootfs *rootfs) {
  char options[PATH_MAX_BYTES * 2];
  snprintf(options, sizeof options, "size=%llu,nr_inodes=%llu,mode=0755",
           (unsigned long long)rootfs->disk_bytes, (unsigned long long)rootfs->inodes);
  if (mount("tiltyard", staged("box"), "tmpfs", MS_NOSUID | MS_NODEV, options)) return "mount(tmpfs)";
  if (mkdir(staged("box/up"), 0755) || mkdir(staged("box/work"), 0755) ||
      mkdir(staged("box/root"), 0755) || mkdir(staged("box/shm"), 0755) ||
      chmod(staged("box/shm"), 01777))
    return "mkdir(box)";
  const char *failed = fill_layer(rootfs->image);
  if (failed) return failed;
  snprintf(options, sizeof options,
           "lowerdir=%s/image-%u/lower,upperdir=%s/box/up,workdir=%s/box/work,userxattr", stage_path,
           rootfs->image, stage_path, stage_path);
  if (mount("tiltyard", staged("box/root"), "overlay", MS_NOSUID | MS_NODEV, options))
    return "mount(overlay)";
  return NULL;
}

const char *rootfs_enter(const struct rootfs *rootfs) {
  if (rootfs->image >= IMAGES_MAX || !images[rootfs->image]) {
    errno = ENOENT;
    return "image";
  }
  const char *failed = mount_overlay(rootfs);
  if (failed) return failed;
  int bind = 0;
  for (struct entry *entry = images[rootfs->image]; entry; entry = entry->next) {
    if (entry->kind != IMAGE_BIND) continue;
    const char *source = staged("image-%u/bind-%d", rootfs->image, bind++);
    if (attach_copy(source, staged("box/root%s", entry->path))) return "attach(image)";
  }
  if (attach_copy(staged("dev"), staged("box/root/dev"))) return "attach(dev)";
  if (mount("devpts", staged("box/root/dev/pts"), "devpts", MS_NOSUID | MS_NOEXEC,
            "newinstance,ptmxmode=0666,mode=0620"))
    return "mount(devpts)";
  if (mount(staged("box/shm"), staged("box/root/dev/shm"), NULL, MS_BIND, NULL)) return "bind(shm)";
  if ((failed = mount_proc(!rootfs->for_zygotes))) return failed;
  if (chdir(staged("box/root"))) return "chdir(root)";
  if (syscall(SYS_pivot_root, ".", ".")) return "pivot_root";
  if (umount2(".", MNT_DETACH)) return "umount(old root)";
  return chdir("/") ? "chdir(/)" : NULL;
}
