/* A directory tree written from the host's records. */
#ifndef TILTYARD_PLANT_H
#define TILTYARD_PLANT_H

#include "frames.h"

void plant_begin(struct outbox *outbox, const struct frame *frame);
void plant_more(struct outbox *outbox, const struct frame *frame);

#endif
