/* Fuzzes the requests to tiltyard-launcher, with the images attached to them. See seam.c. */
#include "seam.h"

#define CONNECTION 4

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static void enter(void) {
  static char name[] = "tiltyard-launcher", connection[] = "4", host[] = "5",
              stage[] = "/stage", cgroup[] = "/cgroup/own=+memory";
  char *arguments[] = {name, connection, host, stage, cgroup, NULL};
  under_main(5, arguments);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
  seam_connection(CONNECTION);
  /* What its images describe is kept as long as it lives, so nothing is said of a leak here. */
  seam_run(seam_cut(bytes, length), CONNECTION, enter, 0);
  return 0;
}
