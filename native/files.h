/* The file requests of the host, answered from inside the sandbox. */
#ifndef TILTYARD_FILES_H
#define TILTYARD_FILES_H

#include "frames.h"

/* Opens the root below which everything is resolved. False, with errno, when that fails. */
bool files_set_up(void);
/* Answers a file request; false when the frame is none. */
bool files_answer(struct outbox *outbox, const struct frame *frame);

#endif
