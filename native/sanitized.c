/* How a program built with the sanitizers behaves; part of no other build. See `make asan`.
 *
 * Nothing can be said from within a sandbox: its streams are /dev/null. So what a report holds is seen
 * by `strace -f -e trace=write` on the launcher; that there was one is seen by the sandbox's death. */
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

const char *__asan_default_options(void) {
  /* Leaks are counted when the launcher ends; a sandbox's pid 1 ends by _exit, which counts none. */
  return "detect_leaks=1:handle_segv=1:abort_on_error=0:allocator_may_return_null=1";
}

const char *__ubsan_default_options(void) { return "print_stacktrace=1"; }
