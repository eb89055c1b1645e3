"""What is to be run in a sandbox, and within which bounds. Pure: an order in, a body out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from tiltyard.core.execution import MIB, Enforcement, Limit, Pty, SandboxSpec, Stdin
from tiltyard.core.files import WORKSPACE
from tiltyard.sandbox.protocol import (
    CHUNK_BYTES_MAX,
    ProgramLimits,
    SpawnFlag,
    spawn_body,
    variables_field,
)

OUTPUT_BYTES_MAX = 16 * MIB
OUTPUT_BYTES_MOST = 2**40
TIMEOUT_S_MAX = 7 * 24 * 3600.0
CPU_S_MAX = 7 * 24 * 3600
TERMINAL_SIDE_MAX = 2**16 - 1
USER_CHARACTERS_MAX = 256
USER_NUMBER_MAX = 2**32 - 2
ROOT = frozenset({"", "0", "root"})


class Environment:
    """What the programs of a sandbox see, encoded once: most of them are given nothing more."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        """Raises `ValueError` for a NUL byte."""
        self._variables = dict(variables)
        self._field = variables_field(self._variables)

    def field(self, more: Mapping[str, str]) -> bytes:
        """As SPAWN carries it, with more variables. Raises `ValueError` for a NUL byte."""
        return variables_field({**self._variables, **more}) if more else self._field


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One program to be run. `Sandbox.spawn` says what each field means."""

    argv: Sequence[str]
    timeout_s: float | None = None
    cpu_s: int = 0
    idle_s: float | None = None
    stdin: bytes | Stdin = b""
    cwd: str = WORKSPACE
    env: Mapping[str, str] | None = None
    user: str | int | None = None
    pty: Pty | None = None
    output_bytes_max: int = OUTPUT_BYTES_MAX

    @property
    def other_user(self) -> str:
        """The user as the supervisor takes it; empty for the sandbox's root."""
        user = "" if self.user is None else str(self.user)
        return "" if user in ROOT else user

    def problem(self) -> str:
        """What makes no sense in it; empty when all of it does."""
        variables = (self.env or {}).items()
        if problem := _problem_with_words(self.argv, stdin=self.stdin, variables=variables):
            return problem
        for name, time_s in (("timeout_s", self.timeout_s), ("idle_s", self.idle_s)):
            if time_s is not None and not (isfinite(time_s) and 0 < time_s <= TIMEOUT_S_MAX):
                return f"{name} {time_s}"
        for name, whole, most in (
            ("cpu_s", self.cpu_s, CPU_S_MAX),
            ("output_bytes_max", self.output_bytes_max, OUTPUT_BYTES_MOST),
        ):
            if type(whole) is not int or not 0 <= whole <= most:
                return f"{name} {whole!r}"
        if isinstance(self.stdin, bytes) and len(self.stdin) > CHUNK_BYTES_MAX:
            return "stdin is over 1 MiB; stream it, or write a file instead"
        if isinstance(self.stdin, bytes) and self.stdin and self.pty is not None:
            return "what a terminal reads is typed with `write`, not given as stdin"
        if isinstance(self.user, int) and not 0 <= self.user <= USER_NUMBER_MAX:
            return f"user {self.user}"
        if isinstance(self.user, str) and (
            "\0" in self.user or not 0 < len(self.user) <= USER_CHARACTERS_MAX
        ):
            return f"user {self.user[:USER_CHARACTERS_MAX]!r}"
        return "" if self.pty is None else problem_with_terminal(self.pty)

    def body(self, *, environment: Environment, limits: ProgramLimits) -> bytes:
        """The body of SPAWN. Raises `ValueError` for an empty argv, a NUL byte, or too much."""
        user = self.other_user
        more: dict[str, str] = {}
        if self.pty is not None:
            more["TERM"] = "xterm-256color"
        if user:
            more["HOME"] = "/tmp"  # noqa: S108 - inside; where every user may write
        if self.env:
            more.update(self.env)
        if not self.argv or any("\0" in word for word in (*self.argv, self.cwd)):
            raise ValueError("argv must not be empty or hold a NUL byte, nor cwd hold one")
        return spawn_body(
            argv=self.argv,
            variables=environment.field(more),
            cwd=self.cwd,
            stdin=self.stdin if isinstance(self.stdin, bytes) else b"",
            limits=limits,
            flags=SpawnFlag.NONE,
            streamed=self.stdin is Stdin.STREAMED and self.pty is None,
            pty=self.pty,
            user=user,
            idle_s=self.idle_s or 0.0,
        )


def problem_with_terminal(size: Pty) -> str:
    """What is wrong with a size; empty when nothing is."""
    fits = all(1 <= side <= TERMINAL_SIDE_MAX for side in (size.rows, size.columns))
    return "" if fits else f"a terminal of {size.rows} rows and {size.columns} columns"


def _problem_with_words(
    argv: Iterable[object], *, stdin: object, variables: Iterable[tuple[object, object]]
) -> str:
    """What would be dropped, cut up or renamed on its way, where nobody checks types."""
    if isinstance(argv, str) or not all(isinstance(word, str) for word in argv):
        return f"argv is a list of strings, not {argv!r:.100}"
    if not isinstance(stdin, bytes | Stdin):
        return f"stdin is bytes or Stdin.STREAMED, not {type(stdin).__name__}"
    for name, value in variables:
        if not isinstance(name, str) or not isinstance(value, str):
            return f"env has strings only, not {name!r:.100}: {type(value).__name__}"
        if not name or "=" in name:
            return f"{name!r:.100} is no name of a variable"
    return ""


def limits_under(
    spec: SandboxSpec,
    enforced: Mapping[Limit, Enforcement],
    *,
    wall_s: float,
    cpu_s: int = 0,
    output_bytes_max: int = OUTPUT_BYTES_MAX,
) -> ProgramLimits:
    """The limits of one program under a sandbox's spec."""
    by_process = enforced[Limit.MEMORY] is not Enforcement.CGROUP
    # The supervisor counts as one of them. A cgroup's refusals are counted, those of the limit
    # of each process are not: where there is a cgroup, it must be the first to refuse.
    spare = 8 if enforced[Limit.PIDS] is Enforcement.CGROUP else 1
    return ProgramLimits(
        wall_s=wall_s,
        cpu_s=cpu_s,
        output_bytes_max=output_bytes_max,
        open_files=spec.limits.open_files,
        processes=spec.limits.pids + spare,
        address_space_bytes=spec.limits.memory_bytes if by_process else 0,
    )
