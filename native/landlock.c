/* A second layer, below the namespaces and beside the system-call filter: Landlock, where the kernel has
 * it. It refuses to every program, whatever its capabilities, what no program of a sandbox needs:
 * device nodes, signals and abstract sockets to whatever is outside, and TCP where there is no network.
 * It forbids nothing that the first layers allow, so a kernel without it gives the same sandbox. */
#include "landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Younger than the headers of the systems that we build on. */
struct ruleset {
  uint64_t files, network, scoped;
};
#define NETWORK_BIND_TCP (1ull << 0)
#define NETWORK_CONNECT_TCP (1ull << 1)
#define SCOPE_ABSTRACT_SOCKETS (1ull << 0)
#define SCOPE_SIGNALS (1ull << 1)
#define FILES_REFER (1ull << 13)
#define VERSION_REFER 2
#define VERSION_NETWORK 4
#define VERSION_SCOPE 6

/* A domain that handles any access to files refuses to move and link them from one directory to
 * another, unless that is allowed by a rule, which the first version does not know. */
static const char *allow_moving(int rules) {
  struct landlock_path_beneath_attr everywhere = {
      .allowed_access = FILES_REFER, .parent_fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC)};
  if (everywhere.parent_fd < 0) return "open(/)";
  long added = syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &everywhere, 0);
  int error = errno;
  close(everywhere.parent_fd);
  errno = error;
  return added ? "landlock_add_rule" : NULL;
}

const char *landlock_restrict(bool may_mount, bool has_network) {
  long version =
      syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) return NULL; /* not built in, or switched off at boot */
  struct ruleset ruleset = {.files = 0};
  /* A domain that handles any access to files may not mount, which a zygote does for its runs. */
  if (!may_mount && version >= VERSION_REFER)
    ruleset.files = LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK | FILES_REFER;
  if (version >= VERSION_NETWORK && !has_network)
    ruleset.network = NETWORK_BIND_TCP | NETWORK_CONNECT_TCP;
  if (version >= VERSION_SCOPE) ruleset.scoped = SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS;
  if (!ruleset.files && !ruleset.network && !ruleset.scoped) return NULL;
  size_t known = version >= VERSION_SCOPE ? sizeof ruleset : version >= VERSION_NETWORK ? 16 : 8;
  int rules = (int)syscall(SYS_landlock_create_ruleset, &ruleset, known, 0);
  if (rules < 0) return "landlock_create_ruleset";
  const char *failed = ruleset.files ? allow_moving(rules) : NULL;
  if (!failed && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) failed = "prctl(no_new_privs)";
  if (!failed && syscall(SYS_landlock_restrict_self, rules, 0)) failed = "landlock_restrict_self";
  int error = errno;
  close(rules);
  errno = error;
  return failed;
}
