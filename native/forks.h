/* Runs that a zygote forks: ordered over its socket, and reported there. */
#ifndef TILTYARD_FORKS_H
#define TILTYARD_FORKS_H

#include "executions.h"

/* Answers a FORK frame. */
void forks_order(struct outbox *outbox, const struct frame *frame);
/* Takes what a zygote says of its runs. */
void forks_hear(struct outbox *outbox, struct execution *zygote);
/* A dead zygote reports nothing more: its runs die with it, and are told as not to be trusted. */
void forks_end_all(struct outbox *outbox, uint32_t zygote_id);

#endif
