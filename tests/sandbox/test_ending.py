"""What an end means, from facts alone: no program can pass its failure off as another one."""

import errno
import os
import signal

import pytest
from hypothesis import given, strategies as st

from tiltyard.core.execution import LOSSES, Reason
from tiltyard.sandbox.ending import Overdue, Usage, ending_of, ending_of_lost
from tiltyard.sandbox.protocol import ExitFlag, RawExit


def exited(code: int, flags: ExitFlag = ExitFlag.NONE, *, cpu_s: float = 0.0) -> RawExit:
    return raw(code << 8, flags, cpu_s=cpu_s)


def killed_by(number: int, flags: ExitFlag = ExitFlag.NONE, *, cpu_s: float = 0.0) -> RawExit:
    return raw(number, flags, cpu_s=cpu_s)


def raw(status: int, flags: ExitFlag, *, cpu_s: float = 0.0, call: str = "") -> RawExit:
    return RawExit(
        status=status,
        flags=flags,
        wall_s=1.0,
        cpu_s=cpu_s,
        memory_peak_bytes=0,
        stdout_bytes=0,
        stderr_bytes=0,
        call=call,
    )


def usage(*, oom_kills: int = 0, pids_refused: int = 0) -> Usage:
    return Usage(cpu_s=0.0, memory_peak_bytes=0, oom_kills=oom_kills, pids_refused=pids_refused)


CALM = usage()


def reason(raw_exit: RawExit, *, after: Usage = CALM, cpu_limit_s: int = 0) -> Reason:
    return ending_of(raw_exit, before=CALM, after=after, cpu_limit_s=cpu_limit_s).reason


@pytest.mark.parametrize("code", [0, 1, 134, 137, 139, 255])
def test_an_exit_code_is_only_an_exit_code(code: int) -> None:
    ending = ending_of(exited(code), before=CALM, after=CALM, cpu_limit_s=0)
    assert (ending.reason, ending.exit_code, ending.signal) == (Reason.EXIT, code, None)


def test_a_signal_is_a_signal() -> None:
    ending = ending_of(killed_by(signal.SIGSEGV), before=CALM, after=CALM, cpu_limit_s=0)
    assert (ending.reason, ending.exit_code, ending.signal) == (Reason.SIGNAL, None, 11)


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        (ExitFlag.WALL, Reason.WALL_TIMEOUT),
        (ExitFlag.OUTPUT, Reason.OUTPUT),
        (ExitFlag.IDLE, Reason.IDLE_TIMEOUT),
        (ExitFlag.KILLED, Reason.KILLED),
        (ExitFlag.INPUT, Reason.KILLED),
        (ExitFlag.ZYGOTE_DIED, Reason.SANDBOX_DIED),
    ],
)
def test_what_the_supervisor_decided_holds(flag: ExitFlag, expected: Reason) -> None:
    assert reason(killed_by(signal.SIGKILL, flag)) is expected


def test_asked_to_end_after_it_had_ended_it_ended_by_itself() -> None:
    assert reason(exited(3, ExitFlag.KILLED)) is Reason.EXIT
    assert reason(killed_by(signal.SIGTERM, ExitFlag.KILLED)) is Reason.SIGNAL


def test_out_of_memory_is_what_the_cgroup_counts() -> None:
    after = usage(oom_kills=1)
    assert reason(killed_by(signal.SIGKILL), after=after) is Reason.OOM
    assert reason(exited(1), after=after) is Reason.OOM
    assert reason(exited(0), after=after) is Reason.EXIT, "a child was killed, and it coped"
    assert reason(killed_by(signal.SIGKILL)) is Reason.SIGNAL


def test_an_old_kill_is_not_counted_again() -> None:
    ending = ending_of(
        exited(1), before=usage(oom_kills=2), after=usage(oom_kills=2), cpu_limit_s=0
    )
    assert ending.reason is Reason.EXIT


def test_cpu_time() -> None:
    assert reason(killed_by(signal.SIGXCPU), cpu_limit_s=1) is Reason.CPU_TIMEOUT
    assert reason(killed_by(signal.SIGKILL, cpu_s=2.0), cpu_limit_s=2) is Reason.CPU_TIMEOUT
    assert reason(killed_by(signal.SIGKILL, cpu_s=1.0), cpu_limit_s=2) is Reason.SIGNAL
    assert reason(killed_by(signal.SIGKILL, cpu_s=9.0), cpu_limit_s=0) is Reason.SIGNAL


def test_a_full_disk_and_refused_processes_need_a_failure() -> None:
    assert reason(exited(1, ExitFlag.DISK_FULL)) is Reason.DISK
    assert reason(exited(0, ExitFlag.DISK_FULL)) is Reason.EXIT
    assert reason(exited(1), after=usage(pids_refused=1)) is Reason.PIDS
    assert reason(exited(0), after=usage(pids_refused=1)) is Reason.EXIT


def test_what_could_not_start_says_which_call_failed() -> None:
    failed = raw(errno.ENOENT, ExitFlag.NOT_STARTED, call="exec")
    ending = ending_of(failed, before=CALM, after=usage(oom_kills=1), cpu_limit_s=0)
    assert ending.reason is Reason.START_FAILED
    assert ending.detail == "exec: No such file or directory"
    assert ending.exit_code is ending.signal is None


@given(
    status=st.integers(-(2**31), 2**31 - 1),
    flags=st.integers(0, 2**32 - 1).map(ExitFlag),
    oom=st.integers(0, 3),
    pids=st.integers(0, 3),
    limit=st.integers(0, 3),
)
def test_every_end_has_one_meaning(
    status: int, flags: ExitFlag, oom: int, pids: int, limit: int
) -> None:
    after = usage(oom_kills=oom, pids_refused=pids)
    ending = ending_of(raw(status, flags), before=CALM, after=after, cpu_limit_s=limit)
    assert isinstance(ending.reason, Reason)
    if ExitFlag.NOT_STARTED not in flags and os.WIFEXITED(status):
        assert ending.exit_code == os.WEXITSTATUS(status)


def overdue(*, cpu_used_s: float | None) -> Overdue:
    return Overdue(since_start_s=10.0, cpus=0.5, cpu_used_s=cpu_used_s)


def lost(
    *,
    before: Usage = CALM,
    after: Usage = CALM,
    overdue: Overdue | None = None,
    died: bool = True,
) -> Reason:
    return ending_of_lost(before=before, after=after, overdue=overdue, died=died).reason


def test_a_lost_sandbox_is_a_fault_of_ours() -> None:
    assert lost(died=True) is Reason.SANDBOX_DIED
    assert lost(died=False) is Reason.OUTCOME_UNKNOWN
    assert {lost(died=True), lost(died=False)} == LOSSES


def test_a_sandbox_that_ate_its_memory_is_not() -> None:
    eaten = usage(oom_kills=1)
    assert lost(after=eaten) is Reason.OOM
    assert lost(before=eaten, after=eaten) is Reason.SANDBOX_DIED


def test_nor_is_one_whose_processes_starved_its_supervisor() -> None:
    def missed(cpu_used_s: float | None) -> Reason:
        return lost(overdue=overdue(cpu_used_s=cpu_used_s), died=False)

    assert missed(4.9) is Reason.WALL_TIMEOUT
    assert missed(0.1) is Reason.OUTCOME_UNKNOWN, "it may have ended, and nobody said so"
    assert missed(None) is Reason.OUTCOME_UNKNOWN
