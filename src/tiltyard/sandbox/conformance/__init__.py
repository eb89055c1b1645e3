"""The hostile suite: what a program may try against its sandbox, and what has to become of it.

Run with `tiltyard conformance`, and by `tests/hostile`. A case is data: programs, the sandbox they
get, and a pure judge. The runner lets one case at a time loose beside a neighbour and looks at the
host before, during and after. Every program is bounded by itself too, because the suite must do no
harm on a machine whose containment fails; none writes to a setting of the host.
"""
