/* See restrict.h. Every step is in force before the program's first instruction, and none can be
 * undone by it: hard limits, bounding set, no_new_privs, filter. */
#include "restrict.h"

#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "seccomp_filter.h"

struct limits field_limits(struct fields *fields) {
  struct limits limits;
  limits.wall_ms = field_u32(fields);
  limits.cpu_s = field_u32(fields);
  limits.output_bytes_max = field_u64(fields);
  limits.open_files = field_u32(fields);
  limits.processes = field_u32(fields);
  limits.address_space_bytes = field_u64(fields);
  return limits;
}

static int limit(int resource, rlim_t soft, rlim_t hard) {
  struct rlimit value = {.rlim_cur = soft, .rlim_max = hard};
  return setrlimit(resource, &value);
}

const char *restrict_resources(const struct limits *limits) {
  /* One byte and not none: only that also keeps the kernel from starting the host's own handler of
   * crashes, which core_pattern may name. */
  if (limit(RLIMIT_CORE, 1, 1)) return "setrlimit(core)";
  /* A user whom the host lets run in real time must not hand that on. */
  if (limit(RLIMIT_RTPRIO, 0, 0)) return "setrlimit(rtprio)";
  if (limit(RLIMIT_NICE, 0, 0)) return "setrlimit(nice)";
  if (limit(RLIMIT_MEMLOCK, 0, 0)) return "setrlimit(memlock)";
  if (limit(RLIMIT_MSGQUEUE, 65536, 65536)) return "setrlimit(msgqueue)";
  if (limit(RLIMIT_NOFILE, limits->open_files, limits->open_files)) return "setrlimit(nofile)";
  if (limit(RLIMIT_NPROC, limits->processes, limits->processes)) return "setrlimit(nproc)";
  /* SIGXCPU at the limit, SIGKILL a second later. */
  if (limits->cpu_s && limit(RLIMIT_CPU, limits->cpu_s, (rlim_t)limits->cpu_s + 1))
    return "setrlimit(cpu)";
  if (limits->address_space_bytes &&
      limit(RLIMIT_AS, limits->address_space_bytes, limits->address_space_bytes))
    return "setrlimit(as)";
  return NULL;
}

const char *restrict_capabilities(void) {
  const uint64_t kept = 1ull << CAP_CHOWN | 1ull << CAP_DAC_OVERRIDE | 1ull << CAP_FOWNER |
                        1ull << CAP_FSETID | 1ull << CAP_KILL | 1ull << CAP_SETGID |
                        1ull << CAP_SETUID | 1ull << CAP_NET_BIND_SERVICE;
  for (int number = 0; number < 64; number++) {
    if (kept >> number & 1) continue;
    if (prctl(PR_CAPBSET_DROP, number, 0, 0, 0) == 0) continue;
    if (errno == EINVAL) break; /* past the last one that this kernel knows */
    return "prctl(PR_CAPBSET_DROP)";
  }
  if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)) return "prctl(PR_CAP_AMBIENT)";
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  struct __user_cap_data_struct sets[2] = {
      {.effective = (uint32_t)kept, .permitted = (uint32_t)kept, .inheritable = 0},
      {.effective = (uint32_t)(kept >> 32), .permitted = (uint32_t)(kept >> 32), .inheritable = 0}};
  if (syscall(SYS_capset, &header, sets)) return "capset";
  return NULL;
}

const char *restrict_system_calls(void) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return "prctl(PR_SET_NO_NEW_PRIVS)";
  struct sock_fprog program = {.len = sizeof seccomp_filter / sizeof *seccomp_filter,
                               .filter = seccomp_filter};
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) return "seccomp";
  return NULL;
}
