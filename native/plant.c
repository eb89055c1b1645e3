/* See plant.h. Everything is made below the directory that the request named, held open, without
 * following any link: what a program puts in the way is an error that names the entry, never a way to
 * somewhere else. One frame holds SLICE_RECORDS_MAX records at most, and the host sends the next when
 * it has the answer to this one, so a tree of any size keeps the supervisor for a moment at a time. */
#include "plant.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cursors.h"
#include "executions.h"
#include "inside.h"

/* Opens the directory above the entry at hand, and finds its last name. */
static int open_above(struct cursor *cursor, const char **name) {
  char *slash = strrchr(cursor->path, '/');
  *name = slash ? slash + 1 : cursor->path;
  if (!slash) return fcntl(cursor->base, F_DUPFD_CLOEXEC, 0);
  *slash = 0;
  int above = below_open(cursor->base, cursor->path, O_PATH | O_DIRECTORY, 0, true);
  *slash = '/';
  return above;
}

/* A new directory gets the mode; one that is there already keeps its own. */
static const char *make_directory(struct cursor *cursor, mode_t mode) {
  const char *name;
  int above = open_above(cursor, &name);
  if (above < 0) return "open(directory above)";
  int made = mkdirat(above, name, mode & 0777), error = errno;
  close(above);
  errno = error;
  if (!made) return NULL;
  if (errno != EEXIST) return "mkdir";
  int existing = below_open(cursor->base, cursor->path, O_PATH | O_DIRECTORY, 0, true);
  if (existing < 0) return "open(existing)";
  close(existing);
  return NULL;
}

/* A link may replace a link, and nothing else. */
static const char *make_link(struct cursor *cursor, struct text text) {
  char target[PATH_BYTES_MAX];
  const char *name, *failed = NULL;
  struct stat about;
  if (text.length == 0 || text.length >= sizeof target || memchr(text.bytes, 0, text.length)) {
    errno = EINVAL;
    return "link target";
  }
  memcpy(target, text.bytes, text.length);
  target[text.length] = 0;
  int above = open_above(cursor, &name);
  if (above < 0) return "open(directory above)";
  if (symlinkat(target, above, name)) {
    if (errno != EEXIST || fstatat(above, name, &about, AT_SYMLINK_NOFOLLOW)) {
      failed = "symlink";
    } else if (!S_ISLNK(about.st_mode)) {
      errno = EEXIST;
      failed = "symlink";
    } else if (unlinkat(above, name, 0) || symlinkat(target, above, name)) {
      failed = "replace(link)";
    }
  }
  int error = errno;
  close(above);
  errno = error;
  return failed;
}

static const char *finish_file(struct cursor *cursor) {
  /* Seconds are what every archive keeps. */
  struct timespec times[2] = {{.tv_sec = (time_t)cursor->mtime_s}, {.tv_sec = (time_t)cursor->mtime_s}};
  int set = futimens(cursor->file, times);
  int error = errno;
  close_fd(&cursor->file);
  errno = error;
  return set ? "utimens" : NULL;
}

static const char *begin_file(struct cursor *cursor, mode_t mode, uint64_t size) {
  cursor->file = below_open_regular(cursor->base, cursor->path, O_WRONLY, 0, true);
  if (cursor->file < 0 && errno == ENOENT)
    cursor->file = below_open_regular(cursor->base, cursor->path, O_WRONLY | O_CREAT, mode, true);
  if (cursor->file < 0) return errno == EINVAL ? "not a regular file" : "open";
  cursor->left = size;
  /* Truncated only after it is known to be regular. */
  if (ftruncate(cursor->file, 0) || fchmod(cursor->file, mode & 0777)) return "truncate";
  return size ? NULL : finish_file(cursor);
}

static const char *put_content(struct cursor *cursor, struct text content) {
  if (cursor->file < 0 || content.length > cursor->left) {
    errno = EINVAL;
    return "content";
  }
  for (uint32_t at = 0; at < content.length;) {
    ssize_t wrote = write(cursor->file, content.bytes + at, content.length - at);
    if (wrote <= 0) return "write";
    at += (uint32_t)wrote;
  }
  cursor->left -= content.length;
  return cursor->left ? NULL : finish_file(cursor);
}

/* One record. Returns NULL or the failing call with errno. */
static const char *put_record(struct cursor *cursor, struct fields *fields) {
  uint32_t kind = field_u32(fields);
  if (kind == RECORD_BYTES) {
    struct text content = field_text(fields);
    errno = EINVAL;
    return fields->bad ? "record" : put_content(cursor, content);
  }
  mode_t mode = field_u32(fields);
  uint64_t size = field_u64(fields);
  uint64_t mtime_s = field_u64(fields);
  errno = EINVAL;
  if (cursor->file >= 0) return "content missing";
  if (!field_path(fields, cursor->path)) {
    cursor->path[0] = 0;
    return "record";
  }
  struct text target = field_text(fields);
  if (fields->bad) return "record";
  cursor->mtime_s = mtime_s;
  switch (kind) {
    case RECORD_DIRECTORY: return make_directory(cursor, mode);
    case RECORD_FILE: return begin_file(cursor, mode, size);
    case RECORD_LINK: return make_link(cursor, target);
    default: return "record";
  }
}

static void put_records(struct outbox *outbox, uint32_t id, struct cursor *cursor,
                        struct fields *fields, bool last) {
  const char *failed = NULL;
  for (uint32_t count = 0; !failed && fields->at < fields->end; count++) {
    errno = EINVAL;
    failed = count < SLICE_RECORDS_MAX ? put_record(cursor, fields) : "records at once";
  }
  if (!failed && last && cursor->file >= 0) {
    errno = EINVAL;
    failed = "content missing";
  }
  if (failed)
    answer_error(outbox, id, errno, failed, cursor->path);
  else
    outbox_frame(outbox, FRAME_DONE, 0, id, NULL, 0);
  if (failed || last) cursor_end(cursor);
}

void plant_begin(struct outbox *outbox, const struct frame *frame) {
  struct fields fields = fields_of(frame);
  char path[PATH_BYTES_MAX];
  uint32_t number = field_u32(&fields), last = field_u32(&fields);
  bool good = field_path(&fields, path);
  struct cursor *cursor = cursor_begin(number, TASK_WRITE);
  if (!good || !cursor) {
    answer_error(outbox, frame->id, EINVAL, "path", NULL);
    if (cursor) cursor_end(cursor);
    return;
  }
  cursor->path[0] = 0;
  const char *name;
  int above = inside_make_parents(path) ? -1 : inside_open_parent(path, &name);
  if (above >= 0) {
    (void)!mkdirat(above, name, 0755); /* whatever it says, the open tells what is there */
    close(above);
  }
  cursor->base = inside_open(path, O_PATH | O_DIRECTORY, 0);
  if (cursor->base < 0) {
    answer_error(outbox, frame->id, errno, "open", NULL);
    cursor_end(cursor);
    return;
  }
  put_records(outbox, frame->id, cursor, &fields, last);
}

void plant_more(struct outbox *outbox, const struct frame *frame) {
  struct fields fields = fields_of(frame);
  uint32_t number = field_u32(&fields), last = field_u32(&fields);
  struct cursor *cursor = cursor_of(number, TASK_WRITE);
  if (fields.bad || !cursor)
    answer_error(outbox, frame->id, EINVAL, "cursor", NULL);
  else
    put_records(outbox, frame->id, cursor, &fields, last);
}
