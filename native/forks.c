/* See forks.h.
 *
 * A zygote is an execution whose descriptor 3 is a SOCK_SEQPACKET socket. For FORK, the supervisor
 * makes the new run's channel and pipes, and sends their far ends over that socket with a
 * `struct fork_order`; the zygote forks, and answers with `struct fork_report`: first the pid, and at
 * the end the wait status with the resources used. Before all of that it says once that it is ready,
 * which the host hears as one byte on the zygote's channel. The run is a child of the zygote and pid 1 of a
 * pid namespace of its own, so killing it kills all that it started.
 *
 * The zygote is trusted code that never ran a program's. The layout of both structs is known to
 * src/tiltyard/sandbox/inside/zygote.py as well: change both together.
 */
#include "forks.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "start.h"

struct fork_order {
  uint32_t id, cpu_s, open_files, processes;
  uint64_t address_space_bytes;
};

enum { REPORT_STARTED = 1, REPORT_EXITED = 2, REPORT_FAILED = 3, REPORT_READY = 4 };

struct fork_report {
  uint32_t kind, id;
  int32_t value; /* pid, wait status, or errno */
  uint32_t reserved;
  uint64_t user_us, system_us, peak_kib;
};

static bool send_order(int fd, const struct fork_order *order, const int far[CAPTURES]) {
  struct iovec part = {.iov_base = (void *)order, .iov_len = sizeof *order};
  union { char bytes[CMSG_SPACE(CAPTURES * sizeof(int))]; struct cmsghdr align; } control = {{0}};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                           .msg_controllen = sizeof control.bytes};
  struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(CAPTURES * sizeof(int));
  memcpy(CMSG_DATA(rights), far, CAPTURES * sizeof(int));
  return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof *order;
}

void forks_order(struct outbox *outbox, const struct frame *frame) {
  struct fields fields = fields_of(frame);
  uint32_t zygote_id = field_u32(&fields);
  struct limits limits = field_limits(&fields);
  struct execution *zygote = execution_find(zygote_id);
  if (fields.bad || !zygote || !zygote->zygote) {
    execution_refuse(outbox, frame->id, ESRCH, "zygote");
    return;
  }
  struct execution *run = execution_add(frame->id, limits);
  if (!run) {
    execution_refuse(outbox, frame->id, EAGAIN, "executions at once");
    return;
  }
  int far[CAPTURES];
  if (!open_streams(run->fds, far, SOCK_STREAM)) {
    execution_refuse(outbox, frame->id, errno, "streams");
    run->used = false;
    return;
  }
  struct fork_order order = {.id = frame->id, .cpu_s = limits.cpu_s, .open_files = limits.open_files,
                             .processes = limits.processes,
                             .address_space_bytes = limits.address_space_bytes};
  run->forked = true;
  run->zygote_id = zygote_id;
  run->deadline_us = 0; /* its time starts when it does */
  if (!send_order(zygote->fds[CAPTURE_CHANNEL], &order, far)) {
    execution_refuse(outbox, frame->id, errno, "zygote");
    for (int which = 0; which < CAPTURES; which++) close_fd(&run->fds[which]);
    run->used = false;
  }
  for (int which = 0; which < CAPTURES; which++) close_fd(&far[which]);
}

void forks_hear(struct outbox *outbox, struct execution *zygote) {
  struct fork_report report;
  while (recv(zygote->fds[CAPTURE_CHANNEL], &report, sizeof report, MSG_DONTWAIT) == sizeof report) {
    if (report.kind == REPORT_READY) {
      outbox_frame(outbox, FRAME_CHANNEL, 0, zygote->id, "", 1);
      continue;
    }
    struct execution *run = execution_find(report.id);
    if (!run || !run->forked || run->zygote_id != zygote->id) continue;
    if (report.kind == REPORT_STARTED) {
      run->pid = report.value;
      run->started_us = now_us();
      if (run->limits.wall_ms) run->deadline_us = run->started_us + run->limits.wall_ms * 1000ull;
      if (run->flags) execution_kill(run, 0); /* its end was decided before its pid was known */
    } else {
      if (report.kind != REPORT_EXITED) run->flags |= EXIT_NOT_STARTED;
      struct used used = {.user_us = report.user_us, .system_us = report.system_us,
                          .peak_kib = report.peak_kib};
      execution_finish(outbox, run, report.value, &used);
    }
  }
}

void forks_end_all(struct outbox *outbox, uint32_t zygote_id) {
  for (int i = 0; i < EXECUTIONS_MAX; i++) {
    struct execution *run = &executions[i];
    if (!run->used || !run->forked || run->zygote_id != zygote_id) continue;
    if (run->pid) kill(run->pid, SIGKILL);
    run->flags |= EXIT_ZYGOTE_DIED;
    execution_finish(outbox, run, SIGKILL, NULL);
  }
}
