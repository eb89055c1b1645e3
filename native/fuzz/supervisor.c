/* Fuzzes all that tiltyard-init is sent, and all that programs can do to it. See seam.c. */
#include "init.h"
#include "seam.h"

#define CONNECTION 3
#define SCORE 4
#define GROUPS 5
/* Its two buffers, what 64 executions may hold, and no more: a request that keeps memory is a leak
 * of every sandbox. */
#define LEFT_MAX 512

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static void enter(void) {
  seam_nothing_at(SCORE);
  seam_nothing_at(GROUPS);
  seam_nothing_at(GROUPS + 1);
  bool for_zygotes = seam_choice(2), has_network = seam_choice(2);
  init_run((struct given){.control = CONNECTION, .score = SCORE, .first_group = GROUPS,
                          .groups = (int)seam_choice(2), .has_first = seam_choice(2),
                          .for_zygotes = for_zygotes, .has_network = has_network});
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
  seam_connection(CONNECTION);
  seam_run(seam_cut(bytes, length), CONNECTION, enter, LEFT_MAX);
  return 0;
}
