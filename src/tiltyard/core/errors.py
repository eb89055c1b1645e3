"""The one error tree. An error is always *our* fault or the caller's, never a program's.

What an untrusted program does wrong is data (an `ExecResult`, a `Verdict`); what is raised here
says what happened, to which id, and what to do about it.
"""


class TiltyardError(Exception):
    """Root of every error Tiltyard raises on purpose.

    `fix` is one sentence that tells the reader what to do; None when nothing can be advised.
    """

    def __init__(self, message: str, *, fix: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message} Fix: {self.fix}" if self.fix else self.message


class UsageError(TiltyardError):
    """A setting, argument or option is wrong. Correct it and call again; nothing was started."""


class TaskError(TiltyardError):
    """A task is unknown or malformed. The message names the task or the file and line."""


class PolicyError(TiltyardError):
    """A policy could not answer: its server is unreachable or refused. Not the model's fault."""


class StoreError(TiltyardError):
    """The run directory cannot be written or read. Free space or correct permissions."""


class GraderError(TiltyardError):
    """The verifier itself failed: its tests are empty, crashed or contradict the reference."""


class UnsoundTask(GraderError):
    """The task itself is bad: no tests, or ones that its reference fails. Mend the task."""


class UnscoredAnswer(GraderError):
    """One answer got no number, though the reference gets one from the same tests. Read the answer:
    either the tests cannot judge it, or it had them not to, for nothing is better than a 0."""


class SandboxError(TiltyardError):
    """Root of the sandbox room's errors: an infrastructure fault, never the program's."""


class SandboxRefused(SandboxError):
    """This machine cannot give what the spec demands; names the failing call and the fix."""


class SandboxDied(SandboxError):
    """The sandbox ended under the call. Whatever it was doing has an unknown outcome."""


class SandboxClosed(SandboxError):
    """A call after release or close. Acquire a new sandbox."""


class ProcessUnknown(SandboxError):
    """No program of that id is known to the sandbox: it never was, or it ended long ago."""


class SandboxFileError(SandboxError):
    """A file request inside the sandbox was refused: missing, not regular, full or too big."""

    def __init__(
        self,
        message: str,
        *,
        fix: str | None = None,
        path: str | None = None,
        errno: int | None = None,
    ) -> None:
        super().__init__(message, fix=fix)
        self.path = path
        """What it is about, as the caller or the tree names it; None when that is no path."""
        self.errno = errno
        """The system's number of the error; None when a limit of ours refused."""


class TreeError(SandboxFileError):
    """A tree could not be sent or fetched. `path` names the entry at which it stopped."""
