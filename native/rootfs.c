/* See rootfs.h.
 *
 * Theory of operation. The launcher lives in a mount namespace of its own. There it stages, once: a
 * minimal /dev, and for each image the lower directory of the overlay and read-only binds of the
 * host's directories (stage.c); later also frozen layers of sandboxes (snapshots.c). A child's mount
 * namespace is a copy of the launcher's, so it finds all of that ready; it adds a size-limited tmpfs
 * for its own layer, joins everything below one overlay, pivots into it and drops the rest. Nothing of
 * this exists on a disk or in the host's own mount namespace, so there is nothing to clean up when
 * the launcher or a child dies at any point.
 *
 * The tmpfs is made by the launcher, which keeps a descriptor of it: that is how it can freeze and
 * compare what a sandbox wrote without the sandbox's help. Its files belong to the sandbox's ids.
 *
 * Owners of lower files. As root every sandbox has host ids of its own, so files of the host's root
 * look like nobody's inside, and the overlay cannot copy them up. Where the sandbox may change them
 * (`writable`, and frozen layers), the launcher takes a detached copy of the mount and shifts its
 * owners into the sandbox's range (an id-mapped mount). That needs the user namespace, which is there
 * only after the clone, so: copies before it, the shift after it, attaching in the child.
 */
#include "rootfs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "snapshots.h"
#include "stage.h"

static int attach(int tree, const char *target) {
  return (int)syscall(SYS_move_mount, tree, "", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH);
}

/* Attaches a copy of a staged mount, with what is mounted below it, at `target`. */
static int attach_copy(const char *source, const char *target) {
  int tree = (int)syscall(SYS_open_tree, AT_FDCWD, source,
                          OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
  if (tree < 0) return -1;
  int moved = attach(tree, target);
  int error = errno;
  close(tree);
  errno = error;
  return moved;
}

int layer_make(uint64_t disk_bytes, uint64_t inodes, uint32_t owner) {
  static const char *const keys[] = {"source", "size", "nr_inodes", "mode", "uid", "gid"};
  char values[6][24];
  snprintf(values[0], sizeof values[0], "tiltyard");
  snprintf(values[1], sizeof values[1], "%llu", (unsigned long long)disk_bytes);
  snprintf(values[2], sizeof values[2], "%llu", (unsigned long long)inodes);
  snprintf(values[3], sizeof values[3], "0755");
  snprintf(values[4], sizeof values[4], "%u", owner);
  snprintf(values[5], sizeof values[5], "%u", owner);
  int context = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
  if (context < 0) return -1;
  int layer = -1, failed = 0;
  for (int i = 0; i < 6 && !failed; i++)
    failed = (int)syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, keys[i], values[i], 0);
  if (!failed) failed = (int)syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
  if (!failed)
    layer = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
  int error = errno;
  close(context);
  errno = error;
  return layer;
}

static const char *add_lower(struct rootfs *rootfs, struct overlay *overlay, bool shifted,
                             const char *path) {
  if (rootfs->lower_count == LOWERS_MAX) {
    errno = E2BIG;
    return "layers";
  }
  struct lower *lower = &rootfs->lower[rootfs->lower_count++];
  snprintf(lower->path, sizeof lower->path, "%s", path);
  lower->tree = -1;
  overlay->lowers++;
  if (!shifted || !rootfs->first_id) return NULL;
  lower->tree = (int)syscall(SYS_open_tree, AT_FDCWD, staged("%s", path),
                             OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
  return lower->tree < 0 ? "open_tree(layer)" : NULL;
}

/* `bind` -1: the sandbox's root. */
static const char *add_overlay(struct rootfs *rootfs, const char *at, int bind) {
  if (rootfs->overlay_count == OVERLAYS_MAX) {
    errno = E2BIG;
    return "binds";
  }
  struct overlay *overlay = &rootfs->overlays[rootfs->overlay_count++];
  *overlay = (struct overlay){.at = at, .first_lower = rootfs->lower_count};
  if (bind < 0)
    snprintf(overlay->upper, sizeof overlay->upper, "up");
  else
    snprintf(overlay->upper, sizeof overlay->upper, "up-%d", bind);
  const char *failed = NULL;
  char path[LOWER_PATH_BYTES];
  for (uint32_t each = rootfs->snapshot; each && !failed; each = snapshot_below(each)) {
    snprintf(path, sizeof path, "snapshot-%u/%s", each, overlay->upper);
    failed = add_lower(rootfs, overlay, true, path);
  }
  if (bind < 0) {
    snprintf(path, sizeof path, "image-%u/lower", rootfs->image);
    return failed ? failed : add_lower(rootfs, overlay, rootfs->writable, path);
  }
  snprintf(path, sizeof path, "image-%u/hide-%d", rootfs->image, bind);
  if (!failed) failed = add_lower(rootfs, overlay, true, path);
  snprintf(path, sizeof path, "image-%u/bind-%d", rootfs->image, bind);
  return failed ? failed : add_lower(rootfs, overlay, true, path);
}

const char *rootfs_prepare(struct rootfs *rootfs) {
  rootfs->layer = -1;
  rootfs->overlay_count = rootfs->lower_count = 0;
  if (!image_entries(rootfs->image)) {
    errno = ENOENT;
    return "image";
  }
  const char *failed = add_overlay(rootfs, "", -1);
  int bind = 0;
  for (struct entry *entry = image_entries(rootfs->image); entry && !failed; entry = entry->next)
    if (entry->kind == IMAGE_BIND && rootfs->writable) failed = add_overlay(rootfs, entry->path, bind++);
  if (!failed) {
    rootfs->layer = layer_make(rootfs->disk_bytes, rootfs->inodes, rootfs->first_id);
    if (rootfs->layer < 0) failed = "mount(tmpfs)";
  }
  if (failed) {
    int error = errno;
    rootfs_close(rootfs);
    errno = error;
  }
  return failed;
}

const char *rootfs_shift(const struct rootfs *rootfs, pid_t pid) {
  struct mount_attr attributes = {.attr_set = MOUNT_ATTR_IDMAP};
  const char *failed = NULL;
  for (int i = 0; i < rootfs->lower_count && !failed; i++) {
    if (rootfs->lower[i].tree < 0) continue;
    if (!attributes.userns_fd) {
      char path[64];
      snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
      int user = open(path, O_RDONLY | O_CLOEXEC);
      if (user < 0) return "open(user namespace)";
      attributes.userns_fd = (uint64_t)user;
    }
    if (syscall(SYS_mount_setattr, rootfs->lower[i].tree, "", AT_EMPTY_PATH, &attributes,
                sizeof attributes))
      failed = "mount_setattr(idmap)";
  }
  int error = errno;
  if (attributes.userns_fd) close((int)attributes.userns_fd);
  errno = error;
  return failed;
}

void rootfs_close(struct rootfs *rootfs) {
  for (int i = 0; i < rootfs->lower_count; i++)
    if (rootfs->lower[i].tree >= 0) close(rootfs->lower[i].tree);
  for (int i = 0; i < rootfs->lower_count; i++) rootfs->lower[i].tree = -1;
}

/* What its root may write from the start. */
static const char *fill_layer(uint32_t image) {
  char path[STAGED_PATH_BYTES];
  int used = snprintf(path, sizeof path, "%s", staged("box/up"));
  for (struct entry *entry = image_entries(image); entry; entry = entry->next) {
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

/* All sandboxes of an ordinary user are one user to the kernel. None may use up that user's watches. */
static const char *share_watches(void) {
  static const char *const shares[][2] = {{"max_inotify_instances", "32"}, {"max_inotify_watches", "8192"}};
  for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
    int fd = open(staged("box/root/proc/sys/user/%s", shares[i][0]), O_WRONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) continue; /* built without */
    bool wrote = fd >= 0 && write(fd, shares[i][1], strlen(shares[i][1])) > 0;
    int error = errno;
    if (fd >= 0) close(fd);
    errno = error;
    if (!wrote) return "write(user.max_inotify)";
  }
  return NULL;
}

/* Entries of /proc that tell of the machine, or reach it, and what is laid over them. */
static struct mask {
  const char *name, *cover;
  bool here; /* looked up once, because looking in vain costs as much as mounting; directories may
              * come with a module later, so they are always tried */
} masks[] = {{"acpi", "empty", true},         {"asound", "empty", true},
             {"scsi", "empty", true},         {"fs", "empty", true},
             {"irq", "empty", true},          {"bus", "empty", true},
             {"kcore", "dev/null", false},     {"keys", "dev/null", false},
             {"key-users", "dev/null", false}, {"kmsg", "dev/null", false},
             {"kallsyms", "dev/null", false},  {"sysrq-trigger", "dev/null", false},
             {"timer_list", "dev/null", false}, {"sched_debug", "dev/null", false},
             {"latency_stats", "dev/null", false}, {"modules", "dev/null", false},
             {"interrupts", "dev/null", false}};

const char *rootfs_set_up(void) {
  int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (proc < 0) return "open(proc)";
  for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
    struct stat about;
    if (!masks[i].here) masks[i].here = !fstatat(proc, masks[i].name, &about, AT_SYMLINK_NOFOLLOW);
  }
  close(proc);
  return NULL;
}

/* Read-only in the end, for the machine's settings and for a program's own entry: there it could take
 * back that the kernel ends it before the supervisor, and before what is outside (oom_score_adj). The
 * minimum that the kernel keeps of a score is no help: only CAP_SYS_RESOURCE of the host sets one, and a
 * supervisor whose children inherit it could not go back to its own score. A zygote gives each of its
 * runs a /proc of its own. */
static const char *mount_proc(const struct rootfs *rootfs) {
  if (mount("proc", staged("box/root/proc"), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL))
    return "mount(proc)";
  const char *failed = rootfs->first_id ? NULL : share_watches();
  if (failed || rootfs->for_zygotes) return failed;
  if (set_mount_flags(staged("box/root/proc"), MOUNT_ATTR_RDONLY)) return "mount_setattr(proc)";
  for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
    if (!masks[i].here) continue;
    const char *at = staged("box/root/proc/%s", masks[i].name);
    if (mount(staged("%s", masks[i].cover), at, NULL, MS_BIND, NULL) && errno != ENOENT) return "bind(proc)";
  }
  /* Root inside owns the supervisor's entries, and could give it a bad name with the kernel
   * (oom_score_adj, autogroup); nobody inside has business with them. */
  if (mount(staged("empty"), staged("box/root/proc/1"), NULL, MS_BIND, NULL)) return "bind(proc/1)";
  const char *boot_id = staged("box/root/proc/sys/kernel/random/boot_id");
  if (mount(staged("boot-id"), boot_id, NULL, MS_BIND, NULL)) return "bind(boot_id)";
  return NULL;
}

static const char *mount_overlay(const struct rootfs *rootfs, const struct overlay *overlay) {
  char options[2 * STAGED_PATH_BYTES], work[32];
  snprintf(work, sizeof work, "box/work%s", overlay->upper + 2);
  /* Of the root its directory in the layer was made, and filled, before. */
  if (*overlay->at && mkdir(staged("box/%s", overlay->upper), 0755)) return "mkdir(layer)";
  if (mkdir(staged("%s", work), 0755)) return "mkdir(work)";
  size_t used = (size_t)snprintf(options, sizeof options, "userxattr,upperdir=%s,workdir=%s,lowerdir=",
                                 staged("box/%s", overlay->upper), staged("%s", work));
  for (int i = overlay->first_lower; i < overlay->first_lower + overlay->lowers; i++) {
    const struct lower *lower = &rootfs->lower[i];
    if (lower->tree >= 0 && attach(lower->tree, staged("lower/%d", i))) return "move_mount(layer)";
    const char *path = lower->tree >= 0 ? staged("lower/%d", i) : staged("%s", lower->path);
    used += (size_t)snprintf(options + used, sizeof options - used, "%s%s",
                             i == overlay->first_lower ? "" : ":", path);
    if (used >= sizeof options) {
      errno = E2BIG;
      return "layers";
    }
  }
  if (mount("tiltyard", staged("box/root%s", overlay->at), "overlay", MS_NOSUID | MS_NODEV, options))
    return "mount(overlay)";
  return NULL;
}

static const char *mount_layers(const struct rootfs *rootfs) {
  if (attach(rootfs->layer, staged("box"))) return "move_mount(tmpfs)";
  if (mkdir(staged("box/up"), 0755) || mkdir(staged("box/root"), 0755) ||
      mkdir(staged("box/shm"), 0755) || chmod(staged("box/shm"), 01777))
    return "mkdir(box)";
  /* A snapshot has these already, as its sandbox left them. */
  const char *failed = rootfs->snapshot ? NULL : fill_layer(rootfs->image);
  for (int i = 0; i < rootfs->overlay_count && !failed; i++)
    failed = mount_overlay(rootfs, &rootfs->overlays[i]);
  return failed;
}

static const char *attach_binds(uint32_t image) {
  int bind = 0;
  for (struct entry *entry = image_entries(image); entry; entry = entry->next) {
    if (entry->kind != IMAGE_BIND) continue;
    const char *source = staged("image-%u/bind-%d", image, bind++);
    if (attach_copy(source, staged("box/root%s", entry->path))) return "attach(image)";
  }
  return NULL;
}

const char *rootfs_enter(const struct rootfs *rootfs) {
  const char *failed = mount_layers(rootfs);
  if (!failed && !rootfs->writable) failed = attach_binds(rootfs->image);
  if (failed) return failed;
  if (attach_copy(staged("dev"), staged("box/root/dev"))) return "attach(dev)";
  if (mount("devpts", staged("box/root/dev/pts"), "devpts", MS_NOSUID | MS_NOEXEC,
            "newinstance,ptmxmode=0666,mode=0620,max=256"))
    return "mount(devpts)";
  if (mount(staged("box/shm"), staged("box/root/dev/shm"), NULL, MS_BIND, NULL)) return "bind(shm)";
  if ((failed = mount_proc(rootfs))) return failed;
  if (chdir(staged("box/root"))) return "chdir(root)";
  if (syscall(SYS_pivot_root, ".", ".")) return "pivot_root";
  if (umount2(".", MNT_DETACH)) return "umount(old root)";
  return chdir("/") ? "chdir(/)" : NULL;
}
