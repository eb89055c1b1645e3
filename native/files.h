/* The file requests of the host, answered from inside the sandbox. */
#ifndef TILTYARD_FILES_H
#define TILTYARD_FILES_H

#include "frames.h"

void file_write(struct outbox *outbox, const struct frame *frame);
void file_read(struct outbox *outbox, const struct frame *frame);
void file_list(struct outbox *outbox, const struct frame *frame);

#endif
