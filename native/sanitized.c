/* How a program built with the sanitizers behaves; part of no other build. See `make asan`.
 *
 * Nothing can be said from within a sandbox: its streams are /dev/null. So what a report holds is seen
 * by `strace -f -e trace=write` on the launcher; that there was one is seen by the sandbox's death. */
const char *__asan_default_options(void);
const char *__ubsan_default_options(void);

const char *__asan_default_options(void) {
  /* No signal has a handler: programs may send any to pid 1, which is only safe from those without.
   * Freed memory is kept a while to see it used; a small while, for it counts into a sandbox's limit.
   * Leaks are looked for when the launcher ends; a sandbox's pid 1 ends by _exit, without. */
  return "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0:"
         "quarantine_size_mb=2:allocator_may_return_null=1:detect_leaks=1";
}

const char *__ubsan_default_options(void) { return "print_stacktrace=1"; }
