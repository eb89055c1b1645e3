"""Running programs: what goes in, what comes back, and that the end of one is the end of it."""

import asyncio
import contextlib
import os
import signal
import stat
from collections.abc import Awaitable, Callable

import pytest

from tiltyard.core.errors import SandboxClosed
from tiltyard.core.execution import MIB, Enforcement, ExecResult, Limit, Reason, SandboxSpec
from tiltyard.sandbox.native.image import Image
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.orders import WORKSPACE
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox

RunPython = Callable[..., Awaitable[ExecResult]]


async def shell(sandbox: Sandbox, script: str, *, timeout_s: float = 20.0) -> ExecResult:
    return await sandbox.run(["sh", "-c", script], timeout_s=timeout_s)


async def test_what_the_host_ignores_its_programs_do_not(image: Image, spec: SandboxSpec) -> None:
    """Whatever started it may have ignored any signal, as a shell does for its background."""
    numbers = [signal.SIGHUP, signal.SIGINT, signal.SIGCHLD, signal.SIGRTMAX]
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        provider = await NativeProvider(image=image).__aenter__()
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
    async with contextlib.aclosing(provider):
        sandbox = await provider.create(spec)
        # Without a shell between, which blocks signals of its own while it forks.
        status = await sandbox.run(["grep", "-E", "Sig(Ign|Blk)", "/proc/self/status"])
        assert status.stdout.text.split() == ["SigBlk:", "0" * 16, "SigIgn:", "0" * 16]
        await sandbox.close()


async def processes(sandbox: Sandbox) -> set[str]:
    """The command names that run in the sandbox, without the supervisor and this listing."""
    listed = await shell(sandbox, "cat /proc/[0-9]*/comm")
    return set(listed.stdout.text.split()) - {"tiltyard-init", "cat", "sh"}


async def test_a_program_ends_with_its_code(sandbox: Sandbox) -> None:
    done = await shell(sandbox, "echo out; echo err >&2; exit 3")
    assert (done.reason, done.exit_code, done.signal, done.ok) == (Reason.EXIT, 3, None, False)
    assert (done.stdout.text, done.stderr.text) == ("out\n", "err\n")
    assert done.wall_s > 0
    assert done.memory_peak_bytes > 0
    assert (await sandbox.run(["true"])).ok


async def test_a_result_says_what_held_it(sandbox: Sandbox, provider: NativeProvider) -> None:
    done = await sandbox.run(["true"])
    assert done.isolation == ("root" if os.geteuid() == 0 else "user-namespace")
    assert done.enforced == provider.enforced
    assert set(done.enforced) == set(Limit), "of every limit it is told by what it is held"
    assert done.enforced[Limit.DISK] is Enforcement.TMPFS
    assert done.enforced[Limit.IDLE] is Enforcement.SUPERVISOR


async def test_a_signal_is_told_apart_from_a_code(sandbox: Sandbox) -> None:
    killed = await shell(sandbox, "kill -SEGV $$")
    assert (killed.reason, killed.signal) == (Reason.SIGNAL, signal.SIGSEGV)
    assert killed.exit_code is None
    claims = await shell(sandbox, "exit 137")
    assert (claims.reason, claims.exit_code, claims.signal) == (Reason.EXIT, 137, None)


async def test_what_goes_in(sandbox: Sandbox) -> None:
    await sandbox.write("deep/er/x", "")
    script = "cat; pwd; echo $EXTRA-$HOME; stat -c %F /dev/stdin"
    done = await sandbox.run(
        ["sh", "-c", script], stdin=b"in\x00put\n", cwd="/workspace/deep", env={"EXTRA": "1"}
    )
    assert done.stdout.head == b"in\x00put\n/workspace/deep\n1-/root\nsymbolic link\n"
    empty = await sandbox.run(["cat"])
    assert (empty.ok, empty.stdout.total_bytes) == (True, 0)
    assert (await sandbox.run(["pwd"])).stdout.text == f"{WORKSPACE}\n"


async def test_only_what_is_given_is_in_the_environment(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_THE_HOST", "secret")
    done = await sandbox.run(["env"], env={"A": "b=c"})
    names = {line.partition("=")[0] for line in done.stdout.text.splitlines()}
    assert names == {*sandbox.environment, "A"}
    assert "secret" not in done.stdout.text


async def test_arguments_are_passed_as_they_are(sandbox: Sandbox) -> None:
    words = ["", "two words", "$HOME", "new\nline", os.fsdecode(b"\xff\xfe"), "café"]
    done = await sandbox.run(["printf", "%s|", *words])
    assert done.stdout.head == b"|".join(map(os.fsencode, words)) + b"|"


@pytest.mark.parametrize(
    ("argv", "cwd", "call"),
    [
        (["no-such-program"], "/", "exec: No such file"),
        (["/etc/passwd"], "/", "exec: Permission denied"),
        (["true"], "/nowhere", "chdir: No such file"),
        (["/"], "/", "exec: "),
    ],
)
async def test_what_cannot_start_says_why(
    sandbox: Sandbox, argv: list[str], cwd: str, call: str
) -> None:
    done = await sandbox.run(argv, cwd=cwd)
    assert done.reason is Reason.START_FAILED
    assert call in done.detail
    assert done.exit_code is done.signal is None
    assert not done.ok


async def test_what_cannot_be_asked_raises(sandbox: Sandbox) -> None:
    bad = [
        {"argv": []},
        {"argv": ["a\0b"]},
        {"argv": "true"},
        {"argv": [b"true"]},
        {"argv": [7]},
        {"argv": ["cat"], "stdin": "text"},
        {"argv": ["cat"], "stdin": "streamed"},
        {"argv": ["true"], "env": {"A=B": "x"}},
        {"argv": ["true"], "env": {"": "x"}},
        {"argv": ["true"], "env": {"A": 1}},
        {"argv": ["true"], "env": {"A": "\0"}},
        {"argv": ["true"], "cwd": "/\0"},
        {"argv": ["true"], "stdin": b"x" * (MIB + 1)},
        {"argv": ["true", "x" * (2 * MIB)]},
        {"argv": ["true"], "timeout_s": 0.0},
        {"argv": ["true"], "timeout_s": -1.0},
        {"argv": ["true"], "timeout_s": float("inf")},
        {"argv": ["true"], "timeout_s": float("nan")},
        {"argv": ["true"], "cpu_s": -1},
        {"argv": ["true"], "cpu_s": 1.5},
        {"argv": ["true"], "output_bytes_max": -1},
        {"argv": ["true"], "output_bytes_max": 1e6},
    ]
    for request in bad:
        with pytest.raises(ValueError, match=r"sandbox|bytes together"):
            await sandbox.run(**request)  # type: ignore[arg-type]
    assert (await sandbox.run(["true"])).ok, "a refused request costs the sandbox nothing"


async def test_as_much_as_may_go_in_does(sandbox: Sandbox) -> None:
    block = bytes(range(256)) * (MIB // 256)
    done = await sandbox.run(["sha256sum"], stdin=block)
    assert done.ok, done.detail
    many = await sandbox.run(["sh", "-c", "echo $#", "sh", *["x" * 10] * 4000])
    assert many.stdout.text == "4000\n"


@pytest.mark.slow
async def test_time_is_up_for_the_whole_tree(sandbox: Sandbox, python: RunPython) -> None:
    done = await python(
        """
        import os, signal, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("begun", flush=True)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
                os.execvp("sleep", ["sleep", "1000"])
            os._exit(0)
        time.sleep(1000)
        """,
        timeout_s=0.5,
    )
    assert done.reason is Reason.WALL_TIMEOUT
    assert done.signal == signal.SIGKILL
    assert 0.4 < done.wall_s < 5
    assert done.stdout.text == "begun\n", "what it said before is kept"
    assert await processes(sandbox) == set()


@pytest.mark.slow
async def test_time_is_up_for_one_of_two(sandbox: Sandbox) -> None:
    await shell(sandbox, "mkfifo fifo")
    async with asyncio.TaskGroup() as group:
        other = group.create_task(shell(sandbox, "read line < fifo; exit 7"))
        late = await shell(sandbox, "(sleep 1000 & sleep 1000) & sleep 1000", timeout_s=0.3)
        assert late.reason is Reason.WALL_TIMEOUT
        assert "sleep" not in await processes(sandbox)
        assert not other.done()
        await shell(sandbox, "echo go > fifo")
    assert other.result().exit_code == 7


@pytest.mark.slow
async def test_cpu_time_is_up(python: RunPython) -> None:
    done = await python("while True: pass", cpu_s=1)
    assert done.reason is Reason.CPU_TIMEOUT
    assert 0.5 < done.cpu_s < 3


@pytest.mark.slow
async def test_cpu_time_is_up_for_one_that_will_not_hear_it(python: RunPython) -> None:
    done = await python(
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass", cpu_s=1
    )
    assert done.reason is Reason.CPU_TIMEOUT


@pytest.mark.slow
async def test_cpu_time_of_children_is_counted(python: RunPython, by_cgroup: bool) -> None:
    done = await python(
        """
        import os, time
        pid = os.fork()
        if pid == 0:
            if os.fork():
                os._exit(0)  # the double-forked one is nobody's child that this program waits for
            while time.process_time() < 0.3: pass
            open("/workspace/done", "w").close()
            os._exit(0)
        os.waitpid(pid, 0)
        while not os.path.exists("/workspace/done"): time.sleep(0.01)
        """
    )
    assert done.ok, done.stderr.text
    assert (done.cpu_s > 0.25) == by_cgroup, "without a cgroup only its own time is seen"


async def test_a_child_that_holds_the_output_delays_nothing(sandbox: Sandbox) -> None:
    done = await shell(sandbox, "echo first; sleep 1000 & echo last")
    assert done.ok
    assert done.stdout.text == "first\nlast\n"
    assert done.wall_s < 10
    while await processes(sandbox) != {"sleep"}:
        pass  # it goes on in the background
    await sandbox.kill()
    assert await processes(sandbox) == set()


async def test_output_is_bounded_in_memory(sandbox: Sandbox) -> None:
    done = await sandbox.run(
        ["head", "-c", str(100 * MIB), "/dev/zero"], output_bytes_max=200 * MIB, timeout_s=60
    )
    assert done.ok
    assert done.stdout.total_bytes == 100 * MIB
    assert done.stdout.truncated
    assert len(done.stdout.head) + len(done.stdout.tail) == 128 * 1024


async def test_too_much_output_ends_it(sandbox: Sandbox) -> None:
    done = await sandbox.run(["cat", "/dev/zero"], output_bytes_max=100_000)
    assert done.reason is Reason.OUTPUT
    assert done.stdout.total_bytes == 100_000
    both = await sandbox.run(
        ["sh", "-c", "head -c 70000 /dev/zero >&2; head -c 70000 /dev/zero"],
        output_bytes_max=100_000,
    )
    assert both.reason is Reason.OUTPUT
    assert both.stderr.total_bytes + both.stdout.total_bytes == 100_000


async def test_too_much_output_is_said_of_one_that_had_ended(sandbox: Sandbox) -> None:
    done = await sandbox.run(["head", "-c", "5000", "/dev/zero"], output_bytes_max=4999)
    assert done.reason is Reason.OUTPUT
    just = await sandbox.run(["head", "-c", "5000", "/dev/zero"], output_bytes_max=5000)
    assert just.ok


async def test_output_is_bytes(sandbox: Sandbox) -> None:
    done = await sandbox.run(["printf", "\\377\\000\\376"])
    assert done.stdout.head == b"\xff\x00\xfe"
    assert done.stdout.text == "\ufffd\x00\ufffd"


async def test_many_at_once(sandbox: Sandbox) -> None:
    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(sandbox.run(["sh", "-c", f"exit {n}"])) for n in range(12)]
    assert [run.result().exit_code for run in runs] == list(range(12))


async def test_more_at_once_than_there_is_room_for(sandbox: Sandbox) -> None:
    async with asyncio.TaskGroup() as group:
        runs = [
            group.create_task(sandbox.run(["cat", "/dev/zero"], output_bytes_max=10**6))
            for _ in range(70)
        ]
    reasons = [run.result().reason for run in runs]
    assert set(reasons) <= {Reason.OUTPUT, Reason.START_FAILED, Reason.PIDS}
    assert Reason.OUTPUT in reasons
    refused = [run.result().detail for run in runs if run.result().reason is Reason.START_FAILED]
    assert all("executions at once" in detail or "Resource" in detail for detail in refused)
    assert (await sandbox.run(["true"])).ok


async def test_kill_ends_what_runs_and_keeps_the_sandbox(sandbox: Sandbox) -> None:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(shell(sandbox, "echo up; sleep 1000", timeout_s=100))
        while "sleep" not in await processes(sandbox):
            pass
        await sandbox.kill()
    done = running.result()
    assert (done.reason, done.signal) == (Reason.KILLED, signal.SIGKILL)
    assert done.stdout.text == "up\n"
    assert (await sandbox.run(["true"])).ok


async def test_cancelling_ends_the_program(sandbox: Sandbox) -> None:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(shell(sandbox, "sleep 1000", timeout_s=100))
        while "sleep" not in await processes(sandbox):
            pass
        running.cancel()
    while "sleep" in await processes(sandbox):
        pass
    assert sandbox.alive


async def test_close_ends_everything_once_and_for_all(sandbox: Sandbox) -> None:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(shell(sandbox, "sleep 1000", timeout_s=100))
        while "sleep" not in await processes(sandbox):
            pass
        await sandbox.close()
        await sandbox.close()
    assert running.result().reason is Reason.SANDBOX_DIED
    assert not sandbox.alive
    for call in (
        sandbox.run(["true"]),
        sandbox.read("x"),
        sandbox.write("x", ""),
        sandbox.list(),
        sandbox.kill(),
        sandbox.ping(),
    ):
        with pytest.raises(SandboxClosed):
            await call


async def test_a_program_has_no_descriptor_that_is_not_its_own(sandbox: Sandbox) -> None:
    done = await shell(sandbox, "ls -1 /proc/self/fd")
    assert done.stdout.text.split() == ["0", "1", "2", "3"], "3 is the listing's own"
    kinds = await shell(sandbox, "for n in 0 1 2; do readlink /proc/$$/fd/$n; done")
    null, *pipes = kinds.stdout.text.split()
    assert null == "/dev/null"
    assert all(pipe.startswith("pipe:") for pipe in pipes)


async def test_the_umask_and_the_session_are_ordinary(sandbox: Sandbox) -> None:
    done = await shell(sandbox, "umask; touch made; cut -d' ' -f6 /proc/$$/stat; echo $$")
    umask, session, own = done.stdout.text.split()
    assert (umask, session) == ("0022", own)
    (entry,) = await sandbox.list()
    assert stat.S_IMODE(entry.mode) == 0o644
