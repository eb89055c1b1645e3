/* See terminal.h.
 *
 * Both ends are opened by descriptor and never by a name that a program could have put there: the
 * near end from the devpts mount itself, whose names the kernel alone makes, and the far end from
 * the near one. The supervisor keeps the far end open beside the program's, so a program that closes
 * its terminal and opens it again finds it as it was, and what it wrote last is never lost with it.
 * When the supervisor closes the near end, the kernel hangs the terminal up.
 */
#include "terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

const char *terminal_open(struct terminal_size size, int *near, int *far) {
  int unlocked = 0;
  const char *failed = NULL;
  *far = -1;
  *near = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
  if (*near < 0) return "open(ptmx)";
  terminal_resize(*near, size);
  if (ioctl(*near, TIOCSPTLCK, &unlocked)) {
    failed = "ioctl(TIOCSPTLCK)";
  } else {
    *far = ioctl(*near, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (*far < 0) failed = "ioctl(TIOCGPTPEER)";
  }
  if (failed) {
    int error = errno;
    close(*near);
    *near = -1;
    errno = error;
  }
  return failed;
}

void terminal_resize(int near, struct terminal_size size) {
  struct winsize window = {.ws_row = size.rows, .ws_col = size.columns};
  (void)ioctl(near, TIOCSWINSZ, &window);
}

const char *terminal_take(void) { return ioctl(0, TIOCSCTTY, 0) ? "ioctl(TIOCSCTTY)" : NULL; }
