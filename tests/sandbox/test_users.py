"""Programs as other users of their sandbox: by number or by name, and never more than that."""

import os
import signal

import pytest

from tiltyard.core.errors import SandboxRefused
from tiltyard.core.execution import Pty, Reason
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox

AS_ROOT = os.geteuid() == 0
of_root = pytest.mark.skipif(not AS_ROOT, reason="an ordinary user's sandbox has one user")

WHO = [
    "sh",
    "-c",
    "id -u; id -g; id -G; grep -E 'Cap(Eff|Prm|Inh|Bnd)' /proc/self/status | cut -f2",
]
NOBODY = "65534"


@of_root
@pytest.mark.parametrize("user", ["nobody", 65534, "65534"])
async def test_it_is_that_user_and_no_more(sandbox: Sandbox, user: str | int) -> None:
    done = await sandbox.run(WHO, user=user)
    number, group, groups, *capabilities = done.stdout.text.split()
    assert (number, group, groups) == (NOBODY, NOBODY, NOBODY)
    assert [int(each, 16) for each in capabilities[:3]] == [0, 0, 0]


@of_root
async def test_it_can_do_what_that_user_can(sandbox: Sandbox) -> None:
    await sandbox.write("/root/secret", "x", mode=0o600)
    script = "cat /root/secret; echo 1 > /workspace/x; echo 2 > /tmp/x && cat /tmp/x; echo $HOME"
    done = await sandbox.run(["sh", "-c", script], user=1234)
    assert done.stdout.text == "2\n/tmp\n"
    assert done.stderr.text.count("denied") + done.stderr.text.count("cannot create") >= 2
    again = await sandbox.run(["sh", "-c", "echo over > /dev/stdout; echo $HOME"], user=1234)
    assert again.stdout.text == "over\n/tmp\n", "its own output can be opened by name"
    own = await sandbox.run(["sh", "-c", "echo $HOME"], user=1234, env={"HOME": "/var/tmp"})
    assert own.stdout.text == "/var/tmp\n"


@of_root
async def test_root_is_what_it_is_without_one(sandbox: Sandbox) -> None:
    for user in (None, 0, "0", "root"):
        done = await sandbox.run(["sh", "-c", "id -u; echo $HOME"], user=user)
        assert done.stdout.text == "0\n/root\n"


@of_root
async def test_its_terminal_is_its_own(sandbox: Sandbox) -> None:
    script = "stat -c %u $(tty); echo written > $(tty)"
    process = await sandbox.spawn(["sh", "-c", script], user="nobody", pty=Pty())
    assert (await process.wait()).stdout.text.split() == [NOBODY, "written"]


@of_root
async def test_it_can_be_ended_as_any_other(sandbox: Sandbox) -> None:
    process = await sandbox.spawn(["sleep", "1000"], user=1234)
    await process.signal(signal.SIGTERM)
    assert (await process.wait()).signal == signal.SIGTERM
    late = await sandbox.run(["sleep", "1000"], user=1234, timeout_s=0.1)
    assert late.reason is Reason.WALL_TIMEOUT


@of_root
@pytest.mark.parametrize(
    ("user", "detail"),
    [
        ("no-such-user", "user in /etc/passwd: No such file"),
        ("nob", "user in /etc/passwd"),
        ("nobody:x", "user in /etc/passwd"),
        ("no\nbody", "user in /etc/passwd"),
        (4_000_000_000, "setres"),
        ("99999999999", "user in /etc/passwd"),
        ("-1", "user in /etc/passwd"),
    ],
)
async def test_one_that_it_does_not_have_is_a_result(
    sandbox: Sandbox, user: str | int, detail: str
) -> None:
    done = await sandbox.run(["true"], user=user)
    assert done.reason is Reason.START_FAILED
    assert detail in done.detail


@of_root
@pytest.mark.parametrize(
    "forged",
    [
        "rm passwd",
        "rm passwd; mkfifo passwd",
        "rm passwd; mkdir passwd",
        "rm passwd; ln -s /dev/zero passwd",
        "rm passwd; ln -s passwd passwd",
        "echo 'user:x:4294967295:0::' > passwd",
        "echo 'user:x:70000:70000::' > passwd",
        "echo 'user:x:-1:-1::' > passwd",
        "echo 'user:x:12' > passwd",
        "echo 'user::::' > passwd",
        "echo 'user' > passwd",
        "head -c 1M /dev/zero > passwd",
        "(head -c 300000 /dev/zero | tr '\\0' x; echo; echo user:x:5:5::) > passwd",
    ],
)
async def test_a_forged_table_gives_nothing(sandbox: Sandbox, forged: str) -> None:
    assert (await sandbox.run(["sh", "-c", f"cd /etc; {forged}"])).ok
    done = await sandbox.run(["id", "-u"], user="user")
    assert done.reason is Reason.START_FAILED, done
    assert (await sandbox.run(["id", "-u"], user=5)).stdout.text == "5\n"


@of_root
async def test_a_table_of_its_own_is_the_sandboxes_to_write(sandbox: Sandbox) -> None:
    await sandbox.write("/etc/passwd", "x:\nagent:x:1001:1002::/home/agent:/bin/sh")
    done = await sandbox.run(["sh", "-c", "id -u; id -g"], user="agent")
    assert done.stdout.text == "1001\n1002\n"


@pytest.mark.skipif(AS_ROOT, reason="root's sandboxes have many users")
async def test_an_ordinary_users_sandbox_has_one_user_and_says_so(sandbox: Sandbox) -> None:
    for user in ("nobody", 1000):
        with pytest.raises(SandboxRefused, match=r"only its root.*run Tiltyard as root"):
            await sandbox.run(["true"], user=user)
    assert (await sandbox.run(["id", "-u"], user="root")).stdout.text == "0\n"
