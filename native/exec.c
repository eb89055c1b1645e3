/* Theory of operation
 *
 * An execution is one main process and up to three descriptors that the supervisor reads: its
 * standard output, its standard error and, when asked for, a stream socket called the channel.
 * Standard input is a file in memory, so there is nothing to feed and nothing that can block.
 * The execution is over when its main process is reaped: what its pipes hold by then is forwarded,
 * then EXIT is sent; a child that still holds a pipe is not waited for. What such a child does then
 * is the sandbox's background: it lives until the sandbox ends, or until `kill` of everything.
 *
 * The wait status, the byte counts and the resources are facts that the program cannot write. What
 * they mean (a timeout, an out-of-memory kill) is decided by the host. Runs of a zygote are
 * executions too, started and reaped elsewhere: see forks.c.
 */
#include "exec.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "forks.h"
#include "start.h"

#define INPUT_BYTES_MAX (16u << 20)
#define DECIDED (EXIT_WALL | EXIT_OUTPUT | EXIT_KILLED | EXIT_INPUT)

static bool restrict_each_program;

void exec_set_up(bool restrict_each) { restrict_each_program = restrict_each; }

static void spawn(struct outbox *outbox, uint32_t id, const struct start *start,
                  const struct limits *limits) {
  struct execution *execution = execution_add(id, *limits);
  if (!execution) {
    execution_refuse(outbox, id, EAGAIN, "executions at once");
    return;
  }
  const char *failed = start_program(start, limits, restrict_each_program, execution->fds,
                                     &execution->report, &execution->pid);
  if (failed) {
    execution_refuse(outbox, id, errno, failed);
    execution->used = false;
    return;
  }
  execution->zygote = start->flags & SPAWN_ZYGOTE;
}

void exec_spawn(struct outbox *outbox, const struct frame *frame) {
  struct fields fields = fields_of(frame);
  struct start start = {.flags = field_u32(&fields)};
  struct limits limits = field_limits(&fields);
  start.argv = field_strings(&fields, ARGUMENTS_MAX);
  start.env = field_strings(&fields, ARGUMENTS_MAX);
  start.cwd = text_copy(field_text(&fields));
  start.input = field_text(&fields);
  if (fields.bad || !start.cwd || !start.argv[0])
    execution_refuse(outbox, frame->id, EINVAL, "spawn");
  else
    spawn(outbox, frame->id, &start, &limits);
  free_strings(start.argv);
  free_strings(start.env);
  free(start.cwd);
}

void exec_fork(struct outbox *outbox, const struct frame *frame) { forks_order(outbox, frame); }

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

void exec_input(const struct frame *frame) {
  struct execution *execution = execution_find(frame->id);
  if (!execution || execution->zygote || execution->fds[CAPTURE_CHANNEL] < 0) return;
  size_t waiting = execution->input_used - execution->input_start;
  if (waiting + frame->length > INPUT_BYTES_MAX) {
    execution_kill(execution, EXIT_INPUT);
    return;
  }
  uint8_t *joined = malloc(waiting + frame->length + 1);
  if (!joined) {
    execution_kill(execution, EXIT_INPUT);
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
      execution_kill(&executions[i], EXIT_KILLED);
  if (id == 0) kill(-1, SIGKILL); /* also what earlier executions left running */
}

int exec_poll_set(struct pollfd *set, bool listen) {
  int count = 0;
  for (int i = 0; i < EXECUTIONS_MAX; i++) {
    const struct execution *execution = &executions[i];
    if (!execution->used) continue;
    for (int which = 0; which < CAPTURES; which++) {
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
    forks_hear(outbox, execution);
    if (events & POLLHUP) close_fd(&execution->fds[which]);
    return;
  }
  if (events & POLLOUT) feed(execution);
  if (!(events & (POLLIN | POLLHUP | POLLERR))) return;
  if (execution_forward(outbox, execution, which) != 0) return;
  close_fd(&execution->fds[which]);
  if (which == CAPTURE_CHANNEL) outbox_frame(outbox, FRAME_CHANNEL, 0, execution->id, NULL, 0);
}

void exec_handle(struct outbox *outbox, const struct pollfd *set, int count) {
  for (int n = 0; n < count; n++) {
    if (!set[n].revents) continue;
    /* An earlier entry may have ended the execution and freed its descriptors: look it up again. */
    for (int i = 0; i < EXECUTIONS_MAX; i++) {
      struct execution *execution = &executions[i];
      for (int which = 0; execution->used && which < CAPTURES; which++)
        if (execution->fds[which] == set[n].fd) {
          handle(outbox, execution, which, set[n].revents);
          i = EXECUTIONS_MAX;
          break;
        }
    }
  }
}

static uint64_t microseconds(struct timeval time) {
  return (uint64_t)time.tv_sec * 1000000u + (uint64_t)time.tv_usec;
}

void exec_reap(struct outbox *outbox) {
  int status;
  struct rusage usage;
  pid_t pid;
  while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
    for (int i = 0; i < EXECUTIONS_MAX; i++) {
      struct execution *execution = &executions[i];
      if (!execution->used || execution->pid != pid) continue;
      struct used used = {.user_us = microseconds(usage.ru_utime),
                          .system_us = microseconds(usage.ru_stime),
                          .peak_kib = (uint64_t)usage.ru_maxrss};
      bool zygote = execution->zygote;
      uint32_t id = execution->id;
      if (zygote) forks_hear(outbox, execution);
      execution_finish(outbox, execution, status, &used);
      if (zygote) forks_end_all(outbox, id);
      break;
    }
  }
}

int exec_deadlines(void) {
  uint64_t now = now_us(), next = 0;
  for (int i = 0; i < EXECUTIONS_MAX; i++) {
    struct execution *execution = &executions[i];
    if (!execution->used || !execution->deadline_us) continue;
    if (execution->deadline_us <= now) execution_kill(execution, execution->flags & DECIDED ? 0 : EXIT_WALL);
    if (!next || execution->deadline_us < next) next = execution->deadline_us;
  }
  if (!next) return -1;
  return next > now ? (int)((next - now + 999) / 1000) : 0;
}
