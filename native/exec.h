/* The executions of one sandbox: started, watched, bounded, ended. */
#ifndef TILTYARD_EXEC_H
#define TILTYARD_EXEC_H

#include <poll.h>

#include "executions.h"
#include "frames.h"

#define POLLED_PER_EXECUTION 4

/* In a sandbox made for a zygote, the supervisor and the zygote keep their capabilities and stay
 * without a system-call filter, because the zygote makes namespaces for its runs; every other program
 * is restricted at its start. Otherwise the supervisor itself is, and all that it starts inherits it. */
void exec_set_up(bool restrict_each);

void exec_spawn(struct outbox *outbox, const struct frame *frame);
void exec_fork(struct outbox *outbox, const struct frame *frame);
void exec_input(struct outbox *outbox, const struct frame *frame);
void exec_close_input(struct outbox *outbox, const struct frame *frame);
void exec_kill(uint32_t id);
void exec_signal(const struct frame *frame);
/* While programs are made to stand still, their time does too. */
void exec_pause(bool paused);
void exec_resize(const struct frame *frame);

/* Fills in what to poll, at most EXECUTIONS_MAX * POLLED_PER_EXECUTION entries; `listen` false when
 * the host is behind with reading, so that programs wait instead of memory growing. */
int exec_poll_set(struct pollfd *set, bool listen);
void exec_handle(struct outbox *outbox, const struct pollfd *set, int count);
/* Reaps every dead child, also orphans that came to pid 1. */
void exec_reap(struct outbox *outbox);
/* Ends what is past its deadline; returns milliseconds to the next one, or -1 when there is none. */
int exec_deadlines(void);

#endif
