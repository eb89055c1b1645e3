"""The yard daemon: what keeps sandboxes alive between `tiltyard sandbox` commands.

Theory of operation. A sandbox lives as long as the process that made it, and a command ends. So the
first `create` starts a daemon, one for each user and runtime directory, which owns a provider and
its sandboxes and listens on a unix socket in a directory that only the user may enter.

- Who holds `daemon.lock` (flock) is the daemon; the kernel frees it however that process ends. So a
  socket whose lock is free is stale, and is replaced.
- Who holds `start.lock` may start a daemon. The daemon inherits it and lets it go when it listens,
  so a second `create` waits for the first one's daemon, even if that command is killed meanwhile.
- The daemon speaks first. A connection that ends before that met a daemon that was just ending, and
  the client begins again.
- A connection carries one request. Its end cancels what was asked for: an interrupted `exec` kills
  its program.
- Every sandbox has a deadline, which the daemon keeps. Without sandboxes and connections it ends.
- `yard.json` says which sandboxes there are, written before one is made. It is read only when the
  daemon is dead: its sandboxes died with it (the launcher sees to that), and are named as lost.
"""
