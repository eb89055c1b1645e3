/* Fuzzes all that tiltyard-init is sent, and all that programs can do to it. See seam.c. */
#include "init.h"
#include "seam.h"

#define CONNECTION 3
#define SCORE 4
/* Its two buffers, what 64 executions may hold, and no more: a request that keeps memory is a leak
 * of every sandbox. */
#define LEFT_MAX 512

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static void enter(void) {
  seam_nothing_at(SCORE);
  bool for_zygotes = seam_choice(2), has_network = seam_choice(2);
  init_run(CONNECTION, SCORE, for_zygotes, has_network);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
  seam_connection(CONNECTION);
  seam_run(seam_cut(bytes, length), CONNECTION, enter, LEFT_MAX);
  return 0;
}
