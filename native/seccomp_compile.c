/* Compiles the allow-list of system calls with libseccomp, at build time.
 *
 * Writes two programs: as a C header the one for what tiltyard-init starts, and as raw bytes the one
 * for runs of a zygote, which are a little less free (see `of_runs`). Unlisted calls answer ENOSYS, so
 * that a C library newer than this list falls back to an older call instead of failing; calls that
 * are refused on purpose answer EPERM and carry their reason below. A foreign architecture (32-bit
 * entry points, x32) kills the process.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *const allowed[] = {
    /* files */
    "access", "chdir", "chmod", "chown", "close", "close_range", "copy_file_range", "creat", "dup",
    "dup2", "dup3", "faccessat", "faccessat2", "fadvise64", "fallocate", "fchdir", "fchmod",
    "fchmodat", "fchmodat2", "fchown", "fchownat", "fcntl", "fdatasync", "fgetxattr", "flistxattr",
    "flock", "fremovexattr", "fsetxattr", "fstat", "fstatfs", "fsync", "ftruncate", "futimesat",
    "getcwd", "getdents", "getdents64", "getxattr", "lchown", "lgetxattr", "link", "linkat", "listxattr",
    "llistxattr", "lremovexattr", "lseek", "lsetxattr", "lstat", "mkdir", "mkdirat", "mknod",
    "mknodat", "newfstatat", "open", "openat", "openat2", "pread64", "preadv", "preadv2",
    "pwrite64", "pwritev", "pwritev2", "read", "readahead", "readlink", "readlinkat", "readv",
    "removexattr", "rename", "renameat", "renameat2", "rmdir", "sendfile", "setxattr", "splice",
    "stat", "statfs", "statx", "symlink", "symlinkat", "sync_file_range", "tee",
    "truncate", "umask", "unlink", "unlinkat", "utime", "utimensat", "utimes", "vmsplice", "write",
    "writev",
    /* memory */
    "brk", "get_mempolicy", "madvise", "membarrier", "memfd_create", "mincore", "mlock", "mlock2",
    "mlockall", "mmap", "mprotect", "mremap", "msync", "munlock", "munlockall", "munmap",
    "pkey_alloc", "pkey_free", "pkey_mprotect", "remap_file_pages",
    /* processes and threads (clone is below: without namespaces) */
    "arch_prctl", "capget", "capset", "execve", "execveat", "exit", "exit_group", "fork", "futex",
    "futex_waitv", "get_robust_list", "get_thread_area", "getcpu", "getegid", "geteuid", "getgid",
    "getgroups", "getpgid", "getpgrp", "getpid", "getppid", "getpriority", "getresgid", "getresuid",
    "getrlimit", "getrusage", "getsid", "gettid", "getuid", "kill", "pause", "pidfd_open",
    "pidfd_send_signal", "prctl", "rseq", "rt_sigaction", "rt_sigpending",
    "rt_sigprocmask", "rt_sigqueueinfo", "rt_sigreturn", "rt_sigsuspend", "rt_sigtimedwait",
    "rt_tgsigqueueinfo", "sched_get_priority_max", "sched_get_priority_min", "sched_getaffinity",
    "sched_getattr", "sched_getparam", "sched_getscheduler", "sched_rr_get_interval",
    "sched_setaffinity", "sched_yield",
    "set_robust_list", "set_thread_area", "set_tid_address", "setfsgid", "setfsuid", "setgid",
    "setgroups", "setpgid", "setregid", "setresgid", "setresuid", "setreuid", "setsid", "setuid",
    "sigaltstack", "tgkill", "time", "times", "tkill", "uname", "vfork", "wait4", "waitid",
    /* waiting and time */
    "alarm", "clock_getres", "clock_gettime", "clock_nanosleep", "epoll_create", "epoll_create1",
    "epoll_ctl", "epoll_pwait", "epoll_pwait2", "epoll_wait", "eventfd", "eventfd2", "getitimer",
    "gettimeofday", "nanosleep", "poll", "ppoll", "pselect6", "restart_syscall", "select",
    "setitimer", "signalfd", "signalfd4", "timer_create", "timer_delete", "timer_getoverrun",
    "timer_gettime", "timer_settime", "timerfd_create", "timerfd_gettime", "timerfd_settime",
    /* talking to each other (socket and socketpair are below: by family) */
    "accept", "accept4", "bind", "connect", "getpeername", "getsockname", "getsockopt", "listen",
    "mq_getsetattr", "mq_notify", "mq_open", "mq_timedreceive", "mq_timedsend", "mq_unlink",
    "msgctl", "msgget", "msgrcv", "msgsnd", "pipe", "pipe2", "recvfrom", "recvmmsg", "recvmsg",
    "semctl", "semget", "semop", "semtimedop", "sendmmsg", "sendmsg", "sendto", "setsockopt",
    "shmat", "shmctl", "shmdt", "shmget", "shutdown",
    /* harmless to itself: asking for less */
    "getrandom", "landlock_add_rule", "landlock_create_ruleset", "landlock_restrict_self",
    "seccomp", "sysinfo",
};

static const char *const refused[] = {
    "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsconfig",
    "fsmount", "fspick", "mount_setattr", "statmount", "listmount", /* the tree stays as it was made */
    "unshare", "setns",                      /* new namespaces open far more kernel than a program needs */
    "ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp",
    "process_madvise",                       /* other processes' memory and descriptors */
    "bpf", "perf_event_open", "userfaultfd", /* kernel surface with a long record of holes */
    "io_uring_setup", "io_uring_enter", "io_uring_register", /* does work that this filter never sees */
    "keyctl", "add_key", "request_key",      /* keyrings are not fully separated by namespaces */
    "init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot",
    "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "syslog", "nfsservctl",
    "settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "sethostname", "setdomainname",
    "iopl", "ioperm", "modify_ldt", "vhangup", /* the machine, not the sandbox */
    "name_to_handle_at", "open_by_handle_at", "fanotify_init", "fanotify_mark",
    "lookup_dcookie",                        /* reach files past the root directory */
    "mbind", "migrate_pages", "move_pages", "set_mempolicy", "memfd_secret",
};

/* Answered with success and not done: nothing of a sandbox is on a disk, and these write out everybody's. */
static const char *const pretended[] = {"sync", "syncfs"};

/* Terminal, file and socket requests that ordinary programs make. Not among them: TIOCSTI and
 * TIOCLINUX, which type into somebody else's terminal. */
static const uint32_t ioctls[] = {
    0x5401, 0x5402, 0x5403, 0x5404, 0x5405, 0x5406, 0x5407, 0x5408, /* TCGETS to TCSETAF */
    0x5409, 0x540a, 0x540b,                 /* TCSBRK, TCXONC, TCFLSH */
    0x540e, 0x540f, 0x5410, 0x5411,         /* TIOCSCTTY, TIOCGPGRP, TIOCSPGRP, TIOCOUTQ */
    0x5413, 0x5414, 0x541b, 0x5421, 0x5422, /* TIOCGWINSZ, TIOCSWINSZ, FIONREAD, FIONBIO, TIOCNOTTY */
    0x5425, 0x5429, 0x5450, 0x5451, 0x5452, /* TCSBRKP, TIOCGSID, FIONCLEX, FIOCLEX, FIOASYNC */
    0x5460, 0x80045430, 0x40045431, 0x5441, /* FIOQSIZE, TIOCGPTN, TIOCSPTLCK, TIOCGPTPEER */
    0x802c542a, 0x402c542b, 0x402c542c, 0x402c542d, /* TCGETS2 to TCSETSF2 */
    0x8910, 0x8912, 0x8913, 0x8915, 0x8919, 0x891b, 0x8921, 0x8927, 0x8933, /* SIOCGIF: reading only */
    0x40049409, 0x4020940d, 0x80086601,     /* FICLONE, FICLONERANGE, FS_IOC_GETFLAGS */
};

/* Allowed for the caller itself, process 0. Of another one, which has the same user as the
 * supervisor, they would lower its limits or starve it, and so end the sandbox from inside. */
static const char *const of_itself[] = {"sched_setattr", "sched_setparam", "sched_setscheduler"};

static const int families[] = {AF_UNIX, AF_INET}; /* and AF_INET6 for programs; no netlink, packet, vsock, alg, ... */

static void must(int result, const char *what) {
  if (result < 0) {
    fprintf(stderr, "seccomp-compile: %s: error %d\n", what, -result);
    exit(1);
  }
}

static void add(scmp_filter_ctx filter, uint32_t action, const char *name) {
  int number = seccomp_syscall_resolve_name(name);
  if (number == __NR_SCMP_ERROR) {
    /* An older libseccomp does not know the name: the call stays unlisted and answers ENOSYS. */
    fprintf(stderr, "seccomp-compile: note: %s is unknown to this libseccomp\n", name);
    return;
  }
  if (number < 0) return; /* not a call of this architecture */
  must(seccomp_rule_add(filter, action, number, 0), name);
}

/* What programs may do and runs may not. */
static const char *const of_programs_only[] = {
    "inotify_add_watch", "inotify_init", "inotify_init1", "inotify_rm_watch", /* shows a run what others
                                              open in the directories that all of them are shown */
};

/* A run is the first process of its pid namespace, where only a SIGKILL from outside can end it: that
 * makes such an end a loss of ours. A run that could lower its own limits of CPU or real time could
 * bring one about, so it may ask for those limits, but not set them. Runs of one cell share a network
 * namespace, in which IPv6 keeps state (flow labels) longer than a run lives. */
static void of_runs(scmp_filter_ctx filter) {
  for (size_t i = 0; i < sizeof of_programs_only / sizeof *of_programs_only; i++)
    add(filter, SCMP_ACT_ERRNO(EPERM), of_programs_only[i]);
  /* A run at idle priority would not get the time to die. */
  for (size_t i = 0; i < sizeof of_itself / sizeof *of_itself; i++)
    add(filter, SCMP_ACT_ERRNO(EPERM), of_itself[i]);
  add(filter, SCMP_ACT_ERRNO(EPERM), "setpriority");
  const uint64_t low = 0xffffffffu; /* the kernel looks at no more of these arguments */
  for (uint32_t limit = 0; limit < RLIM_NLIMITS; limit++) {
    bool kills = limit == RLIMIT_CPU || limit == RLIMIT_RTTIME;
    uint32_t action = kills ? SCMP_ACT_ERRNO(EPERM) : SCMP_ACT_ALLOW;
    must(seccomp_rule_add(filter, action, SCMP_SYS(setrlimit), 1,
                          SCMP_A0(SCMP_CMP_MASKED_EQ, low, limit)), "setrlimit");
    if (kills) continue;
    must(seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 2,
                          SCMP_A0(SCMP_CMP_MASKED_EQ, low, 0),
                          SCMP_A1(SCMP_CMP_MASKED_EQ, low, limit)), "prlimit64");
  }
  must(seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 2,
                        SCMP_A0(SCMP_CMP_MASKED_EQ, low, 0), SCMP_A2(SCMP_CMP_EQ, 0)), "prlimit64");
}

static void of_programs(scmp_filter_ctx filter) {
  for (size_t i = 0; i < sizeof of_programs_only / sizeof *of_programs_only; i++)
    add(filter, SCMP_ACT_ALLOW, of_programs_only[i]);
  must(seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
                        SCMP_A0(SCMP_CMP_MASKED_EQ, 0xffffffffu, AF_INET6)), "socket");
  for (size_t i = 0; i < sizeof of_itself / sizeof *of_itself; i++) {
    int number = seccomp_syscall_resolve_name(of_itself[i]);
    must(seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, 1,
                          SCMP_A0(SCMP_CMP_MASKED_EQ, 0xffffffffu, 0)), of_itself[i]);
    must(seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), number, 1, SCMP_A0(SCMP_CMP_GE, 1)),
         of_itself[i]);
  }
  /* PRIO_PROCESS of the caller, for the same reason; not of a group or a user. */
  must(seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(setpriority), 2,
                        SCMP_A0(SCMP_CMP_MASKED_EQ, 0xffffffffu, 0),
                        SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffffu, 0)), "setpriority");
  add(filter, SCMP_ACT_ALLOW, "setrlimit");
  must(seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 1,
                        SCMP_A0(SCMP_CMP_MASKED_EQ, 0xffffffffu, 0)), "prlimit64");
}

static void fill(scmp_filter_ctx filter) {
  const uint64_t namespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
                              CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
  for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++)
    add(filter, SCMP_ACT_ALLOW, allowed[i]);
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
    add(filter, SCMP_ACT_ERRNO(EPERM), refused[i]);
  for (size_t i = 0; i < sizeof pretended / sizeof *pretended; i++)
    add(filter, SCMP_ACT_ERRNO(0), pretended[i]);
  /* clone3 hides its flags behind a pointer: it stays unlisted and the C library uses clone. */
  must(seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                        SCMP_A0(SCMP_CMP_MASKED_EQ, namespaces, 0)), "clone");
  /* Only the low 32 bits reach the kernel's ioctl: the high ones are masked off here as well. */
  for (size_t i = 0; i < sizeof ioctls / sizeof *ioctls; i++)
    must(seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1,
                          SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffffu, ioctls[i])), "ioctl");
  for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
    must(seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socket), 1,
                          SCMP_A0(SCMP_CMP_MASKED_EQ, 0xffffffffu, (uint64_t)families[i])), "socket");
    must(seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(socketpair), 1,
                          SCMP_A0(SCMP_CMP_MASKED_EQ, 0xffffffffu, (uint64_t)families[i])),
         "socketpair");
  }
  /* personality: the default, asking, and switching address randomisation off for oneself. */
  const uint64_t personalities[] = {0x0, 0x8, 0x20000, 0x20008, 0x0040000, 0xffffffff};
  for (size_t i = 0; i < sizeof personalities / sizeof *personalities; i++)
    must(seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(personality), 1,
                          SCMP_A0(SCMP_CMP_EQ, personalities[i])), "personality");
}

static void compile_to(int fd, void (*special)(scmp_filter_ctx)) {
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
  if (!filter || fd < 0) exit(1);
  must(seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS), "bad arch");
  (void)seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a binary tree; since 2.5 */
  fill(filter);
  special(filter);
  must(seccomp_export_bpf(filter, fd), "export");
  seccomp_release(filter);
}

static void write_header(FILE *raw, const char *header_path) {
  FILE *header = fopen(header_path, "w");
  if (!header) exit(1);
  struct { uint16_t code; uint8_t jt, jf; uint32_t k; } op;
  size_t count = 0;
  fprintf(header, "/* Written by seccomp-compile. */\nstatic struct sock_filter seccomp_filter[] = {\n");
  for (; fread(&op, sizeof op, 1, raw) == 1; count++)
    fprintf(header, "  {0x%x, %u, %u, 0x%x},\n", op.code, op.jt, op.jf, op.k);
  fprintf(header, "};\n");
  if (count == 0 || ferror(raw) || fclose(header)) exit(1);
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: seccomp-compile HEADER RAW\n");
    return 2;
  }
  FILE *programs = tmpfile();
  if (!programs) return 1;
  compile_to(fileno(programs), of_programs);
  rewind(programs);
  write_header(programs, argv[1]);
  fclose(programs);
  int runs = open(argv[2], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  compile_to(runs, of_runs);
  return close(runs) ? 1 : 0;
}
