/* Runs the inputs in files, where there is no libFuzzer: any compiler with the sanitizers does. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define INPUT_BYTES_MAX (4u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

int main(int argc, char **argv) {
  uint8_t *bytes = malloc(INPUT_BYTES_MAX);
  for (int i = 1; bytes && i < argc; i++) {
    FILE *file = fopen(argv[i], "rb");
    if (!file) {
      fprintf(stderr, "replay: cannot open %s\n", argv[i]);
      return 2;
    }
    size_t length = fread(bytes, 1, INPUT_BYTES_MAX, file);
    fclose(file);
    fprintf(stderr, "replay: %s\n", argv[i]);
    /* A copy of exactly its size, so that reading past its end is seen. */
    uint8_t *input = malloc(length ? length : 1);
    for (size_t n = 0; input && n < length; n++) input[n] = bytes[n];
    LLVMFuzzerTestOneInput(input, length);
    free(input);
  }
  free(bytes);
  printf("%d inputs\n", argc - 1);
  return 0;
}
