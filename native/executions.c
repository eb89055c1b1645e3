/* See executions.h. */
#include "executions.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "groups.h"
#include "start.h"
#include "tree.h"

#define LAST_READ_BYTES_MAX (1u << 20) /* after the end: more than a pipe holds, yet bounded */
#define KILL_AGAIN_US 5000
#define KILL_PASSES_MAX 64

struct execution executions[EXECUTIONS_MAX];

uint64_t now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

struct execution *execution_find(uint32_t id) {
  for (int i = 0; i < EXECUTIONS_MAX; i++)
    if (executions[i].used && executions[i].id == id) return &executions[i];
  return NULL;
}

struct execution *execution_add(uint32_t id, struct limits limits) {
  for (int i = 0; i < EXECUTIONS_MAX; i++) {
    if (executions[i].used) continue;
    uint64_t now = now_us();
    executions[i] = (struct execution){
        .id = id, .used = true, .fds = {-1, -1, -1}, .input = -1, .terminal = -1, .report = -1,
        .limits = limits, .started_us = now, .heard_us = now, .deadline_us = limits.wall_ms ? now + limits.wall_ms * 1000ull : 0};
    return &executions[i];
  }
  return NULL;
}

void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static bool disk_is_full(void) {
  struct statvfs disk;
  return statvfs("/", &disk) == 0 && (disk.f_bavail == 0 || disk.f_favail == 0);
}

static void send_exit(struct outbox *outbox, uint32_t id, int32_t status, uint32_t flags,
                      const struct execution *execution, const struct used *used,
                      const char *call) {
  struct body body = {.length = 0};
  put_u32(&body, (uint32_t)status);
  put_u32(&body, flags);
  put_u64(&body, execution ? now_us() - execution->started_us : 0);
  put_u64(&body, used ? used->user_us : 0);
  put_u64(&body, used ? used->system_us : 0);
  put_u64(&body, used ? used->peak_kib : 0);
  put_u64(&body, execution ? execution->totals[CAPTURE_STDOUT] : 0);
  put_u64(&body, execution ? execution->totals[CAPTURE_STDERR] : 0);
  put_u64(&body, used ? used->read_blocks * 512 : 0);
  put_u64(&body, used ? used->written_blocks * 512 : 0);
  put_u32(&body, execution ? execution->group : 0);
  put_text(&body, call);
  outbox_frame(outbox, FRAME_EXIT, 0, id, body.bytes, body.length);
}

void execution_refuse(struct outbox *outbox, uint32_t id, int error, const char *call) {
  send_exit(outbox, id, error, EXIT_NOT_STARTED, NULL, NULL, call);
}

void execution_kill(struct execution *execution, uint32_t flag) {
  execution->flags |= flag;
  if (execution->exited) return;
  /* Whoever forks faster than one pass kills is met again until it is gone. */
  execution->deadline_us = now_us() + KILL_AGAIN_US;
  if (execution->pid == 0) return; /* not reported yet: killed when it is */
  if (execution->forked) {
    kill(execution->pid, SIGKILL);
    return;
  }
  int others = 0;
  for (int i = 0; i < EXECUTIONS_MAX; i++)
    others += executions[i].used && &executions[i] != execution;
  if (others == 0 || !group_signal(execution->group, SIGKILL)) tree_kill(execution->pid, others == 0);
}

bool execution_has_spoken(const struct execution *execution) {
  struct pollfd set[CAPTURES];
  for (int which = 0; which < CAPTURES; which++)
    set[which] = (struct pollfd){.fd = execution->fds[which], .events = POLLIN};
  if (poll(set, CAPTURES, 0) <= 0) return false;
  for (int which = 0; which < CAPTURES; which++)
    if (set[which].revents & POLLIN) return true;
  return false;
}

ssize_t execution_forward(struct outbox *outbox, struct execution *execution, int which) {
  static uint8_t chunk[65536];
  static const uint8_t types[CAPTURES] = {FRAME_STDOUT, FRAME_STDERR, FRAME_CHANNEL};
  ssize_t got = read(execution->fds[which], chunk, sizeof chunk);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? -1 : 0;
  if (got == 0) return 0;
  if (execution->idle_us) execution->heard_us = now_us();
  uint64_t room = execution->limits.output_bytes_max;
  for (int each = 0; each < CAPTURES; each++) room -= execution->totals[each];
  size_t sent = (uint64_t)got < room ? (size_t)got : (size_t)room;
  execution->totals[which] += sent;
  if (sent) outbox_frame(outbox, types[which], 0, execution->id, chunk, sent);
  if (sent < (size_t)got) execution_kill(execution, EXIT_OUTPUT);
  return got;
}

void execution_finish(struct outbox *outbox, struct execution *execution, int32_t status,
                      const struct used *used) {
  execution->exited = true;
  /* Killed, it is killed with what it forked until its own end. */
  for (int pass = 0; execution->flags & EXIT_FORCED && pass < KILL_PASSES_MAX; pass++)
    if (!group_signal(execution->group, SIGKILL)) break;
  for (int which = 0; which < CAPTURES; which++) {
    for (size_t budget = LAST_READ_BYTES_MAX; execution->fds[which] >= 0 && budget > 65535;) {
      ssize_t got = execution_forward(outbox, execution, which);
      if (got <= 0) break;
      budget -= (size_t)got;
    }
    close_fd(&execution->fds[which]);
  }
  close_fd(&execution->input);
  close_fd(&execution->terminal);
  struct start_failure failure = {0};
  if (execution->report >= 0 && read(execution->report, &failure, sizeof failure) == sizeof failure) {
    failure.call[sizeof failure.call - 1] = 0;
    status = failure.error;
    execution->flags |= EXIT_NOT_STARTED;
  }
  close_fd(&execution->report);
  if (disk_is_full()) execution->flags |= EXIT_DISK_FULL;
  send_exit(outbox, execution->id, status, execution->flags, execution, used, failure.call);
  free(execution->given);
  *execution = (struct execution){.used = false};
}
