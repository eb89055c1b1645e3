/* Theory of operation
 *
 * An execution is one main process and up to three descriptors that the supervisor reads: its
 * standard output, its standard error and, when asked for, a stream socket called the channel.
 * Standard input is a sealed memory file, so there is nothing to feed and nothing that can block.
 * The execution is over when its main process is reaped: what its pipes hold by then is forwarded,
 * then EXIT is sent; a child that still holds a pipe is not waited for.
 *
 * A zygote is an execution whose descriptor 3 is a SOCK_SEQPACKET socket. For FORK, the supervisor
 * makes the new run's channel and pipes, and sends their far ends over that socket with a
 * `struct fork_order`; the zygote forks, and answers with `struct fork_report`: first the pid, and at
 * the end the wait status with the resources used. The run is a child of the zygote and pid 1 of a
 * pid namespace of its own, so killing it kills all that it started.
 *
 * The wait status, the byte counts and the resources are facts that the program cannot write. What
 * they mean (a timeout, an out-of-memory kill) is decided by the host.
 */
#include "exec.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "restrict.h"
#include "start.h"
#include "tree.h"

#define INPUT_BYTES_MAX (8u << 20)
#define LAST_READ_BYTES_MAX (1u << 20) /* after the end: more than a pipe holds, yet bounded */
#define CAPTURE_STDOUT 0
#define CAPTURE_STDERR 1
#define CAPTURE_CHANNEL 2

struct execution {
  uint32_t id;
  bool used, zygote, forked, exited;
  pid_t pid; /* 0: the zygote has not answered yet */
  uint32_t zygote_id;
  int fds[3]; /* by CAPTURE_*; -1: closed */
  int report; /* start failure of a spawned child: struct start_failure; -1 for a forked run */
  uint64_t totals[3];
  struct limits limits;
  uint64_t started_us, deadline_us; /* deadline 0: none */
  uint32_t flags;
  uint8_t *input;
  size_t input_start, input_used;
};

struct fork_order {
  uint32_t id, cpu_s, open_files, processes;
  uint64_t address_space_bytes;
};

enum { REPORT_STARTED = 1, REPORT_EXITED = 2, REPORT_FAILED = 3 };

struct fork_report {
  uint32_t kind, id;
  int32_t value; /* pid, wait status, or errno */
  uint32_t reserved;
  uint64_t user_us, system_us, peak_kib;
};

static struct execution executions[EXECUTIONS_MAX];
static bool filter_each_program;

void exec_set_up(bool filter_each) { filter_each_program = filter_each; }

static uint64_t now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static struct execution *find(uint32_t id) {
  for (int i = 0; i < EXECUTIONS_MAX; i++)
    if (executions[i].used && executions[i].id == id) return &executions[i];
  return NULL;
}

static struct execution *take_free(uint32_t id, struct limits limits) {
  for (int i = 0; i < EXECUTIONS_MAX; i++) {
    if (executions[i].used) continue;
    uint64_t now = now_us();
    executions[i] = (struct execution){
        .id = id, .used = true, .fds = {-1, -1, -1}, .report = -1, .limits = limits,
        .started_us = now, .deadline_us = limits.wall_ms ? now + limits.wall_ms * 1000ull : 0};
    return &executions[i];
  }
  return NULL;
}

static void close_fd(int *fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

static bool disk_is_full(void) {
  struct statvfs disk;
  return statvfs("/", &disk) == 0 && (disk.f_bavail == 0 || disk.f_favail == 0);
}

static void send_exit(struct outbox *outbox, uint32_t id, int32_t status, uint32_t flags,
                      const struct execution *execution, const struct fork_report *used,
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
  put_text(&body, call);
  outbox_frame(outbox, FRAME_EXIT, 0, id, body.bytes, body.length);
}

static void refuse(struct outbox *outbox, uint32_t id, int error, const char *call) {
  send_exit(outbox, id, error, EXIT_NOT_STARTED, NULL, NULL, call);
}

static void kill_execution(struct execution *execution, uint32_t flag) {
  if (execution->exited) return;
  execution->flags |= flag;
  if (execution->pid == 0) return; /* not reported yet: killed when it is */
  if (execution->forked) {
    kill(execution->pid, SIGKILL);
    return;
  }
  int others = 0;
  for (int i = 0; i < EXECUTIONS_MAX; i++)
    others += executions[i].used && &executions[i] != execution;
  tree_kill(execution->pid, others == 0);
}

/* Reads one descriptor of an execution once. Returns bytes read, 0 at its end, -1 when empty. */
static ssize_t forward(struct outbox *outbox, struct execution *execution, int which) {
  static uint8_t chunk[65536];
  static const uint8_t types[3] = {FRAME_STDOUT, FRAME_STDERR, FRAME_CHANNEL};
  ssize_t got = read(execution->fds[which], chunk, sizeof chunk);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? -1 : 0;
  if (got == 0) return 0;
  uint64_t room = execution->limits.output_bytes_max - execution->totals[CAPTURE_STDOUT] -
                  execution->totals[CAPTURE_STDERR] - execution->totals[CAPTURE_CHANNEL];
  size_t sent = (uint64_t)got < room ? (size_t)got : (size_t)room;
  execution->totals[which] += sent;
  if (sent) outbox_frame(outbox, types[which], 0, execution->id, chunk, sent);
  if (sent < (size_t)got) kill_execution(execution, EXIT_OUTPUT);
  return got;
}

static void finish(struct outbox *outbox, struct execution *execution, int32_t status,
                   const struct fork_report *used) {
  execution->exited = true;
  for (int which = 0; which < 3; which++) {
    for (size_t budget = LAST_READ_BYTES_MAX; execution->fds[which] >= 0 && budget > 65535;) {
      ssize_t got = forward(outbox, execution, which);
      if (got <= 0) break;
      budget -= (size_t)got;
    }
    close_fd(&execution->fds[which]);
  }
  struct start_failure failure = {0};
  if (execution->report >= 0 && read(execution->report, &failure, sizeof failure) == sizeof failure) {
    failure.call[sizeof failure.call - 1] = 0;
    status = failure.error;
    execution->flags |= EXIT_NOT_STARTED;
  }
  close_fd(&execution->report);
  if (disk_is_full()) execution->flags |= EXIT_DISK_FULL;
  send_exit(outbox, execution->id, status, execution->flags, execution, used, failure.call);
  free(execution->input);
  *execution = (struct execution){.used = false};
}

/* Gives a program's channel what it will take now. */
static void feed(struct execution *execution) {
  while (execution->input_start < execution->input_used) {
    ssize_t sent = send(execution->fds[CAPTURE_CHANNEL], execution->input + execution->input_start,
                        execution->input_used - execution->input_start, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent <= 0) {
      if (sent < 0 && errno != EAGAIN && errno != EINTR) execution->input_start = execution->input_used;
      return;
    }
    execution->input_start += (size_t)sent;
  }
}

/* A dead zygote reports nothing more: its runs die with it, and are told as not to be trusted. */
static void end_runs_of(struct outbox *outbox, uint32_t zygote_id) {
  for (int i = 0; i < EXECUTIONS_MAX; i++) {
    struct execution *run = &executions[i];
    if (!run->used || !run->forked || run->zygote_id != zygote_id) continue;
    if (run->pid) kill(run->pid, SIGKILL);
    run->flags |= EXIT_ZYGOTE_DIED;
    finish(outbox, run, SIGKILL, NULL);
  }
}

void exec_spawn(struct outbox *outbox, const struct frame *frame) {
  struct fields fields = fields_of(frame);
  struct start start = {.flags = field_u32(&fields)};
  struct limits limits = field_limits(&fields);
  start.argv = field_strings(&fields, ARGUMENTS_MAX);
  start.env = field_strings(&fields, ARGUMENTS_MAX);
  start.cwd = text_copy(field_text(&fields));
  start.input = field_text(&fields);
  if (fields.bad || !start.cwd || !start.argv[0]) {
    refuse(outbox, frame->id, EINVAL, "spawn");
  } else {
    struct execution *execution = take_free(frame->id, limits);
    if (!execution) {
      refuse(outbox, frame->id, EAGAIN, "executions at once");
    } else {
      const char *failed = start_program(&start, &limits, filter_each_program, execution->fds,
                                         &execution->report, &execution->pid);
      if (failed) {
        refuse(outbox, frame->id, errno, failed);
        execution->used = false;
      } else {
        execution->zygote = start.flags & SPAWN_ZYGOTE;
        struct body body = {.length = 0};
        put_u32(&body, (uint32_t)execution->pid);
        outbox_frame(outbox, FRAME_STARTED, 0, frame->id, body.bytes, body.length);
      }
    }
  }
  free_strings(start.argv);
  free_strings(start.env);
  free(start.cwd);
}

static bool send_order(int fd, const struct fork_order *order, const int far[3]) {
  struct iovec part = {.iov_base = (void *)order, .iov_len = sizeof *order};
  union { char bytes[CMSG_SPACE(3 * sizeof(int))]; struct cmsghdr align; } control = {{0}};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                           .msg_controllen = sizeof control.bytes};
  struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(3 * sizeof(int));
  memcpy(CMSG_DATA(rights), far, 3 * sizeof(int));
  return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof *order;
}

void exec_fork(struct outbox *outbox, const struct frame *frame) {
  struct fields fields = fields_of(frame);
  uint32_t zygote_id = field_u32(&fields);
  struct limits limits = field_limits(&fields);
  struct execution *zygote = find(zygote_id);
  if (fields.bad || !zygote || !zygote->zygote) {
    refuse(outbox, frame->id, ESRCH, "zygote");
    return;
  }
  struct execution *run = take_free(frame->id, limits);
  if (!run) {
    refuse(outbox, frame->id, EAGAIN, "executions at once");
    return;
  }
  int far[3] = {-1, -1, -1};
  if (!open_streams(run->fds, far, SOCK_STREAM)) {
    refuse(outbox, frame->id, errno, "streams");
    run->used = false;
    return;
  }
  struct fork_order order = {.id = frame->id, .cpu_s = limits.cpu_s, .open_files = limits.open_files,
                             .processes = limits.processes,
                             .address_space_bytes = limits.address_space_bytes};
  run->forked = true;
  run->zygote_id = zygote_id;
  if (!send_order(zygote->fds[CAPTURE_CHANNEL], &order, far)) {
    refuse(outbox, frame->id, errno, "zygote");
    for (int which = 0; which < 3; which++) close_fd(&run->fds[which]);
    run->used = false;
  }
  for (int which = 0; which < 3; which++) close_fd(&far[which]);
}

/* What the zygote says of its runs. The zygote is trusted code that never ran a program's. */
static void hear_zygote(struct outbox *outbox, struct execution *zygote) {
  struct fork_report report;
  while (recv(zygote->fds[CAPTURE_CHANNEL], &report, sizeof report, MSG_DONTWAIT) == sizeof report) {
    struct execution *run = find(report.id);
    if (!run || !run->forked || run->zygote_id != zygote->id) continue;
    if (report.kind == REPORT_STARTED) {
      run->pid = report.value;
      struct body body = {.length = 0};
      put_u32(&body, (uint32_t)run->pid);
      outbox_frame(outbox, FRAME_STARTED, 0, run->id, body.bytes, body.length);
      if (run->flags) kill(run->pid, SIGKILL); /* its end was decided before its pid was known */
    } else if (report.kind == REPORT_EXITED) {
      finish(outbox, run, report.value, &report);
    } else {
      run->flags |= EXIT_NOT_STARTED;
      finish(outbox, run, report.value, &report);
    }
  }
}

void exec_input(const struct frame *frame) {
  struct execution *execution = find(frame->id);
  if (!execution || execution->zygote || execution->fds[CAPTURE_CHANNEL] < 0) return;
  size_t waiting = execution->input_used - execution->input_start;
  if (waiting + frame->length > INPUT_BYTES_MAX) {
    kill_execution(execution, EXIT_INPUT);
    return;
  }
  uint8_t *joined = malloc(waiting + frame->length + 1);
  if (!joined) {
    kill_execution(execution, EXIT_INPUT);
    return;
  }
  if (waiting) memcpy(joined, execution->input + execution->input_start, waiting);
  memcpy(joined + waiting, frame->body, frame->length);
  free(execution->input);
  execution->input = joined;
  execution->input_start = 0;
  execution->input_used = waiting + frame->length;
  feed(execution);
}

void exec_kill(uint32_t id) {
  for (int i = 0; i < EXECUTIONS_MAX; i++)
    if (executions[i].used && (id == 0 || executions[i].id == id))
      kill_execution(&executions[i], EXIT_KILLED);
}

int exec_poll_set(struct pollfd *set, bool listen) {
  int count = 0;
  for (int i = 0; i < EXECUTIONS_MAX; i++) {
    const struct execution *execution = &executions[i];
    if (!execution->used) continue;
    for (int which = 0; which < 3; which++) {
      if (execution->fds[which] < 0) continue;
      short events = listen || execution->zygote ? POLLIN : 0;
      if (which == CAPTURE_CHANNEL && execution->input_start < execution->input_used)
        events |= POLLOUT;
      set[count++] = (struct pollfd){.fd = execution->fds[which], .events = events};
    }
  }
  return count;
}

static void handle(struct outbox *outbox, struct execution *execution, int which, short events) {
  if (which == CAPTURE_CHANNEL && execution->zygote) {
    hear_zygote(outbox, execution);
    if (events & POLLHUP) close_fd(&execution->fds[which]);
    return;
  }
  if (events & POLLOUT) feed(execution);
  if (!(events & (POLLIN | POLLHUP | POLLERR))) return;
  if (forward(outbox, execution, which) != 0) return;
  close_fd(&execution->fds[which]);
  if (which == CAPTURE_CHANNEL) outbox_frame(outbox, FRAME_CHANNEL, 0, execution->id, NULL, 0);
}

void exec_handle(struct outbox *outbox, const struct pollfd *set, int count) {
  for (int n = 0; n < count; n++) {
    if (!set[n].revents) continue;
    /* An earlier entry may have ended the execution and freed its descriptors: look it up again. */
    for (int i = 0; i < EXECUTIONS_MAX; i++) {
      struct execution *execution = &executions[i];
      for (int which = 0; execution->used && which < 3; which++)
        if (execution->fds[which] == set[n].fd) {
          handle(outbox, execution, which, set[n].revents);
          i = EXECUTIONS_MAX;
          break;
        }
    }
  }
}

void exec_reap(struct outbox *outbox) {
  int status;
  struct rusage used;
  pid_t pid;
  while ((pid = wait4(-1, &status, WNOHANG, &used)) > 0) {
    for (int i = 0; i < EXECUTIONS_MAX; i++) {
      struct execution *execution = &executions[i];
      if (!execution->used || execution->pid != pid) continue;
      struct fork_report report = {
          .user_us = (uint64_t)used.ru_utime.tv_sec * 1000000u + (uint64_t)used.ru_utime.tv_usec,
          .system_us = (uint64_t)used.ru_stime.tv_sec * 1000000u + (uint64_t)used.ru_stime.tv_usec,
          .peak_kib = (uint64_t)used.ru_maxrss};
      bool zygote = execution->zygote;
      uint32_t id = execution->id;
      if (zygote) hear_zygote(outbox, execution);
      finish(outbox, execution, status, &report);
      if (zygote) end_runs_of(outbox, id);
      break;
    }
  }
}

int exec_deadlines(struct outbox *outbox) {
  uint64_t now = now_us(), next = 0;
  (void)outbox;
  for (int i = 0; i < EXECUTIONS_MAX; i++) {
    struct execution *execution = &executions[i];
    if (!execution->used || !execution->deadline_us) continue;
    if (execution->deadline_us <= now) {
      kill_execution(execution, EXIT_WALL);
      /* Whoever forks faster than one pass kills is met again until it is gone. */
      execution->deadline_us = now + 5000;
    }
    if (!next || execution->deadline_us < next) next = execution->deadline_us;
  }
  return next ? (int)((next - now + 999) / 1000) : -1;
}
