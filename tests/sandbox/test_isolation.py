"""What a program inside may not do, tried by doing it: as the sandbox's own root, all it can be."""

import os
import platform
import re
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tiltyard.core.execution import ExecResult, SandboxSpec
from tiltyard.sandbox.native.id_ranges import FIRST_HOST_ID
from tiltyard.sandbox.native.landlock import TCP_VERSION, landlock_version
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.supervised import Sandbox

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(
        platform.machine() != "x86_64", reason="the numbers of system calls below are x86_64's"
    ),
]

RunPython = Callable[..., Awaitable[ExecResult]]


def host_file() -> os.stat_result:
    return Path("/usr/bin/env").stat()


def own_namespace(kind: str) -> str:
    return str(Path(f"/proc/self/ns/{kind}").readlink())


CALLS = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)

def refused(name, number, *args):
    ctypes.set_errno(0)
    words = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    result = libc.syscall(ctypes.c_long(number), *words)
    code = ctypes.get_errno()
    if result != -1 or code not in (errno.EPERM, errno.ENOSYS):
        print(name, result, errno.errorcode.get(code, code))
"""


async def quiet(python: RunPython, source: str) -> None:
    """Runs a probe that prints whatever it was not refused."""
    done = await python(CALLS + source)
    assert done.ok, (done.reason, done.stderr.text)
    assert done.stdout.text == ""


async def test_mounts_and_namespaces(python: RunPython) -> None:
    await quiet(
        python,
        """
flags = {"NEWNS": 0x20000, "NEWUSER": 0x10000000, "NEWPID": 0x20000000, "NEWNET": 0x40000000,
         "NEWIPC": 0x8000000, "NEWUTS": 0x4000000, "NEWCGROUP": 0x2000000, "NEWTIME": 0x80}
for name, flag in flags.items():
    refused("unshare " + name, 272, flag)
    if name != "NEWTIME":
        refused("clone " + name, 56, flag | 17, 0, 0, 0, 0)
        refused("clone3 " + name, 435, (ctypes.c_uint64 * 11)(flag, 0, 0, 0, 17), 88)
own = os.open("/proc/self/ns/user", os.O_RDONLY)
refused("setns", 308, own, 0)
refused("mount", 165, b"none", b"/tmp", b"tmpfs", 0, 0)
refused("remount", 165, b"none", b"/usr", b"", 32 | 4096, 0)
refused("umount2", 166, b"/proc/kcore", 2)
refused("pivot_root", 155, b"/", b"/tmp")
refused("chroot", 161, b"/tmp")
for name, number in {"open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431,
                     "fsmount": 432, "fspick": 433, "mount_setattr": 442}.items():
    refused(name, number, 0, 0, 0, 0, 0)
""",
    )


async def test_other_processes_and_the_kernel(python: RunPython) -> None:
    await quiet(
        python,
        """
me = os.getpid()
refused("ptrace traceme", 101, 0, 0, 0, 0)
refused("ptrace attach", 101, 16, 1, 0, 0)
refused("ptrace seize", 101, 0x4206, 1, 0, 0)
for name, number, args in [
    ("process_vm_readv", 310, (1, 0, 0, 0, 0, 0)), ("process_vm_writev", 311, (1, 0, 0, 0, 0, 0)),
    ("kcmp", 312, (me, 1, 0, 0, 0)), ("pidfd_getfd", 438, (0, 0, 0)),
    ("process_madvise", 440, (0, 0, 0, 0, 0)),
    ("add_key", 248, (0, 0, 0, 0, 0)), ("request_key", 249, (0, 0, 0, 0)),
    ("keyctl", 250, (0, -3, 1, 0, 0)), ("bpf", 321, (0, 0, 0)),
    ("perf_event_open", 298, (0, 0, -1, -1, 0)), ("userfaultfd", 323, (0,)),
    ("io_uring_setup", 425, (1, 0)), ("io_uring_enter", 426, (0, 0, 0, 0, 0)),
    ("io_uring_register", 427, (0, 0, 0, 0)), ("init_module", 175, (0, 0, 0)),
    ("finit_module", 313, (0, 0, 0)), ("delete_module", 176, (0, 0)),
    ("kexec_load", 246, (0, 0, 0, 0)), ("reboot", 169, (0, 0, 0, 0)), ("swapon", 167, (0, 0)),
    ("acct", 163, (0,)), ("syslog", 103, (3, 0, 0)), ("settimeofday", 164, (0, 0)),
    ("clock_settime", 227, (0, 0)), ("adjtimex", 159, (0,)), ("sethostname", 170, (0, 0)),
    ("iopl", 172, (3,)), ("ioperm", 173, (0, 1, 1)), ("modify_ldt", 154, (0, 0, 0)),
    ("name_to_handle_at", 303, (0, 0, 0, 0, 0)), ("open_by_handle_at", 304, (0, 0, 0)),
    ("fanotify_init", 300, (0, 0)), ("memfd_secret", 447, (0,)), ("mbind", 237, (0, 0, 0, 0, 0, 0)),
    ("move_pages", 279, (0, 0, 0, 0, 0, 0)), ("quotactl", 179, (0, 0, 0, 0)),
    ("prlimit of pid 1", 302, (1, 7, 0, 0)), ("sched_setscheduler of pid 1", 144, (1, 5, 0)),
    ("sched_setparam of pid 1", 142, (1, 0)), ("sched_setattr of pid 1", 314, (1, 0, 0)),
    ("setpriority of pid 1", 141, (0, 1, 19)), ("setpriority of a user", 141, (2, 0, 19)),
    ("setpriority of a group", 141, (1, 0, 19)),
]:
    refused(name, number, *args)
""",
    )


async def test_sockets_and_terminals(python: RunPython) -> None:
    await quiet(
        python,
        """
import fcntl, pty, socket
for family in range(0, 46):
    if family not in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
        refused(f"socket {family}", 41, family, 1, 0)
        refused(f"socketpair {family}", 53, family, 1, 0, 0)
refused("socket, high bits", 41, 16 | 1 << 32, 3, 0)
ours, theirs = pty.openpty()
for name, request in {"TIOCSTI": 0x5412, "TIOCLINUX": 0x541c, "TIOCSETD": 0x5423,
                      "TIOCSTI with high bits": 0x5412 | 1 << 40}.items():
    refused(name, 16, theirs, request, ctypes.create_string_buffer(b"x"))
assert os.isatty(theirs)
""",
    )


async def test_foreign_entry_points_kill(sandbox: Sandbox) -> None:
    """The 32-bit table has other numbers: a filter that let it in would check the wrong ones."""
    source = CALLS + (
        "import mmap\n"
        "code = bytes.fromhex('b814000000cd80c3')\n"  # mov eax, 20 (getpid); int 0x80; ret
        "page = mmap.mmap(-1, 4096, prot=7)\npage.write(code)\n"
        "at = ctypes.addressof(ctypes.c_char.from_buffer(page))\n"
        "print('ran', ctypes.CFUNCTYPE(ctypes.c_int)(at)())\n"
    )
    done = await sandbox.run(["python3", "-I", "-S", "-c", source])
    assert done.signal is not None, done.stdout.text
    x32 = await sandbox.run(
        ["python3", "-I", "-S", "-c", CALLS + "print(libc.syscall(ctypes.c_long(0x40000027)))"]
    )
    assert x32.signal is not None or x32.stdout.text == "-1\n"


async def test_raw_and_outside_network(python: RunPython) -> None:
    await quiet(
        python,
        """
import socket
for kind in (socket.SOCK_RAW, 10):
    try:
        socket.socket(socket.AF_INET, kind, 1)
        print("raw socket")
    except OSError:
        pass
for address in (("127.0.0.1", 1), ("192.0.2.1", 80), ("8.8.8.8", 53)):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as one:
            one.settimeout(0.2)
            try:
                one.connect(address)
                print("connected to", address)
            except OSError:
                pass
with open("/proc/net/dev") as table:
    names = {line.split(":")[0].strip() for line in table.readlines()[2:]}
assert names == {"lo"}, names
with open("/proc/net/route") as table:
    assert len(table.readlines()) <= 1
""",
    )


async def test_a_program_does_not_learn_its_place_on_the_host(sandbox: Sandbox) -> None:
    done = await sandbox.run(["cat", "/proc/self/cgroup"])
    assert {line.rpartition(":")[2] for line in done.stdout.text.split()} <= {"/", "/e1"}


async def test_the_boot_of_the_host_is_not_told(sandbox: Sandbox, provider: NativeProvider) -> None:
    boot_id = "/proc/sys/kernel/random/boot_id"
    told = (await sandbox.run(["cat", boot_id])).stdout.text
    assert uuid.UUID(told.strip()).version == 4
    assert told != Path(boot_id).read_text()
    assert not (await sandbox.run(["sh", "-c", f"echo x > {boot_id}"])).ok
    assert (await sandbox.run(["cat", boot_id])).stdout.text == told


async def test_files_can_be_moved_and_linked_between_directories(sandbox: Sandbox) -> None:
    """Landlock refuses that by default to whomever it refuses anything with files."""
    script = "mkdir a b; echo x > a/f; mv a/f b/g; ln b/g a/h; mv b /tmp/b; cat /tmp/b/g a/h"
    done = await sandbox.run(["sh", "-c", script])
    assert (done.stdout.text, done.stderr.text) == ("x\nx\n", "")


@pytest.mark.skipif(landlock_version() < TCP_VERSION, reason="this kernel's Landlock knows no TCP")
async def test_landlock_refuses_what_the_other_layers_might_not(python: RunPython) -> None:
    """Seen where no other layer refuses: the filter allows the calls."""
    done = await python(
        """
        import socket
        ours = socket.socket()
        for call in (ours.bind, ours.connect):
            try:
                call(("127.0.0.1", 8080))
            except PermissionError:
                print("refused")
        """
    )
    assert done.stdout.text.split() == ["refused"] * 2


async def test_the_status_of_a_program(sandbox: Sandbox) -> None:
    done = await sandbox.run(["cat", "/proc/self/status"])
    status = dict(re.findall(r"^(\w+):\s*(.*)$", done.stdout.text, re.MULTILINE))
    assert status["Seccomp"] == "2"
    assert status["NoNewPrivs"] == "1"
    held = int(status["CapEff"], 16)
    allowed = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 10))
    assert held & ~allowed == 0
    assert int(status["CapBnd"], 16) & ~allowed == 0
    assert int(status["CapAmb"], 16) == int(status["CapInh"], 16) == 0


async def test_no_program_gains_by_being_executed(python: RunPython) -> None:
    done = await python(
        """
        import os, shutil, subprocess
        shutil.copy("/usr/bin/id", "/workspace/id")
        os.chmod("/workspace/id", 0o6755)
        if os.fork() == 0:
            try:
                os.setresgid(1000, 1000, 1000)
                os.setresuid(1000, 1000, 1000)
            except OSError:
                os._exit(9)  # as an ordinary user, root is the only user there is
            os.execv("/workspace/id", ["id", "-u"])
        print(os.waitstatus_to_exitcode(os.wait()[1]))
        """
    )
    assert done.ok, done.stderr.text
    assert done.stdout.text.split() in (["1000", "0"], ["9"])


async def test_proc_is_masked_and_its_settings_are_read_only(python: RunPython) -> None:
    await quiet(
        python,
        """
for path in ("kcore", "keys", "kmsg", "sysrq-trigger", "timer_list", "kallsyms", "interrupts"):
    try:
        assert open(f"/proc/{path}", "rb").read(10) == b"", path
    except FileNotFoundError:
        pass
for path in ("acpi", "scsi", "fs", "irq", "bus"):
    if os.path.isdir(f"/proc/{path}"):
        assert os.listdir(f"/proc/{path}") == [], path
for top, _, files in os.walk("/proc/sys"):
    for name in files:
        try:
            open(os.path.join(top, name), "w")
            print(os.path.join(top, name))
        except OSError as error:
            assert error.errno in (errno.EROFS, errno.EACCES, errno.EPERM), error
try:
    open("/proc/sysrq-trigger", "w").write("x")  # it is /dev/null
except OSError:
    pass
""",
    )


async def test_the_supervisor_gives_nothing_away(python: RunPython) -> None:
    await quiet(
        python,
        """
assert os.listdir("/proc/1") == []
assert os.listdir("/proc/self/../1") == []
for path in ("environ", "mem", "exe", "root", "fd/3", "oom_score_adj", "autogroup", "cwd/.."):
    assert not os.path.lexists(f"/proc/1/{path}")
os.kill(1, 0)
""",
    )


async def test_the_supervisor_lives_through_all_of_it(sandbox: Sandbox, python: RunPython) -> None:
    await python("import os\nfor n in range(1, 65):\n try: os.kill(1, n)\n except OSError: pass")
    await python("import os, signal\nos.kill(-1, signal.SIGKILL)")
    await sandbox.ping()
    assert (await sandbox.run(["true"])).ok


async def test_root_inside_is_nobody_outside(sandbox: Sandbox) -> None:
    done = await sandbox.run(["cat", "/proc/self/uid_map", "/proc/self/gid_map"])
    inside, outside, count, *groups = map(int, done.stdout.text.split())
    assert inside == 0
    if os.geteuid() == 0:
        assert outside >= FIRST_HOST_ID
        assert count == 65536
        assert groups == [inside, outside, count]
    else:
        assert count == 1


async def test_no_two_sandboxes_share_an_id(provider: NativeProvider, spec: SandboxSpec) -> None:
    if os.geteuid() != 0:
        pytest.skip("an ordinary user has one id only, and all sandboxes have it")
    async with NativeProvider() as second:
        made = [await source.create(spec) for source in (provider, provider, second, second)]
        maps = [
            (await box.run(["cat", "/proc/self/uid_map"])).stdout.text.split()[1] for box in made
        ]
        assert len(set(maps)) == 4
        for box in made:
            await box.close()


async def test_a_file_of_the_host_is_out_of_reach(
    sandbox: Sandbox, tmp_path: Path, python: RunPython
) -> None:
    """Even by its own path, device and inode, with every capability the sandbox's root has."""
    secret = tmp_path / "secret"
    secret.write_text("of the host")
    secret.chmod(0o666)
    done = await sandbox.run(["sh", "-c", 'cat "$1"; echo changed > "$1"', "sh", str(secret)])
    assert "of the host" not in done.stdout.text
    assert secret.read_text() == "of the host"
    before = host_file()
    await python(
        """
        import os
        env = "/usr/bin/env"
        for attempt in (
            lambda: open(env, "r+b"), lambda: os.chmod(env, 0o777), lambda: os.chown(env, 0, 0),
            lambda: os.utime(env), lambda: os.rename(env, "/usr/bin/x"), lambda: os.unlink(env),
            lambda: os.link(env, "/workspace/link"), lambda: os.truncate(env, 0),
            lambda: os.setxattr(env, "user.x", b"y"), lambda: os.chmod("/dev/null", 0),
            lambda: os.remove("/dev/null"), lambda: os.mkdir("/dev/x"),
            lambda: os.utime("/dev/null"),
        ):
            try:
                attempt()
            except OSError:
                continue
            raise SystemExit("a file of the host was changed")
        """
    )
    assert host_file() == before


async def test_a_sandbox_neither_sees_nor_reaches_another(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    one, other = await provider.create(spec), await provider.create(spec)
    await one.write("/tmp/here", "one")
    await one.run(["sh", "-c", "sleep 1000 >/dev/null 2>&1 & true"])
    talk = ["python3", "-I", "-S", "-c"]
    listen = """
import os, socket, time
one = socket.socket(socket.AF_UNIX)
one.bind("\\0name")
one.listen()
if os.fork():
    os._exit(0)
os.close(1), os.close(2)
time.sleep(1000)
"""
    await one.run([*talk, listen])
    seen = await other.run(["sh", "-c", "cat /proc/[0-9]*/comm; ls /tmp; ls /dev/shm"])
    assert "sleep" not in seen.stdout.text
    assert "here" not in seen.stdout.text
    reached = await other.run(
        [*talk, "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0name')"]
    )
    assert "ConnectionRefusedError" in reached.stderr.text
    for namespace in ("user", "pid", "mnt", "net", "ipc", "uts", "cgroup"):
        names = [await box.run(["readlink", f"/proc/self/ns/{namespace}"]) for box in (one, other)]
        own = own_namespace(namespace)
        assert len({own, *(name.stdout.text.strip() for name in names)}) == 3, namespace
    await one.close()
    await other.close()
