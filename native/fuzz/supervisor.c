/* Fuzzes all that tiltyard-init is sent, and all that programs can do to it. See seam.c. */
#include <stdbool.h>

#include "seam.h"

#define CONNECTION 3
/* Its two buffers, what 64 executions may hold, and no more: a request that keeps memory is a leak
 * of every sandbox. */
#define LEFT_MAX 512

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static void enter(void) {
  static char name[] = "tiltyard-init", option[] = "--for-zygotes";
  char *arguments[] = {name, option, NULL};
  bool for_zygotes = seam_choice(2);
  if (!for_zygotes) arguments[1] = NULL;
  under_main(for_zygotes ? 2 : 1, arguments);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
  seam_connection(CONNECTION);
  seam_run(seam_cut(bytes, length), CONNECTION, enter, LEFT_MAX);
  return 0;
}
