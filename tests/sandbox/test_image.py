"""The host image: enough of the machine to work with, and nothing of it that is anybody's own."""

import importlib.metadata
import os
import pwd
import sys
import sysconfig
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tiltyard.core.execution import ExecResult, SandboxSpec
from tiltyard.sandbox.native.image import PYTHON_HOME, Image, RecordKind, host_image
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.supervised import Sandbox

RunPython = Callable[..., Awaitable[ExecResult]]
ROOT = Path(__file__).resolve().parents[2]


def binds(image: Image) -> dict[str, str]:
    return {
        record.path: os.fsdecode(record.argument)
        for record in image.records
        if record.kind is RecordKind.BIND
    }


def test_only_usr_and_python_are_shown(image: Image) -> None:
    shown = binds(image)
    allowed = {"/usr", sys.base_prefix, sysconfig.get_path("purelib")}
    allowed |= {str(Path(place).resolve()) for place in allowed}
    allowed |= {path for path in shown if path.startswith(("/bin", "/sbin", "/lib"))}
    assert set(shown.values()) <= allowed
    assert shown["/usr"] == "/usr"


def test_every_copied_file_is_a_public_one(image: Image) -> None:
    copied = [
        record
        for record in image.records
        if record.kind in {RecordKind.FILE, RecordKind.OWN_FILE} and record.path.startswith("/etc")
    ]
    assert {"/etc/passwd", "/etc/group", "/etc/hosts"} <= {record.path for record in copied}
    for record in copied:
        original = Path(record.path)
        if original.is_file() and original.read_bytes() == record.argument:
            assert original.stat().st_mode & 0o004, f"{record.path} is not everybody's to read"


def test_the_description_is_bounded_and_repeatable(image: Image) -> None:
    assert host_image().description() == image.description()
    assert len(image.description()) < 8 << 20


@pytest.mark.sandbox
@pytest.mark.parametrize("cached", [True, False])
async def test_python_finds_its_library_in_either_way(
    spec: SandboxSpec, tmp_path: Path, cached: bool
) -> None:
    """By the loader's cache, or by a variable that nothing else needs where there is no cache."""
    image = host_image() if cached else host_image(loader_cache=tmp_path / "none")
    outside = not Path(sys.base_prefix).resolve().is_relative_to("/usr")
    shared = outside and bool(sysconfig.get_config_var("Py_ENABLE_SHARED"))
    assert ("LD_LIBRARY_PATH" in image.environment) == (shared and not cached)
    async with NativeProvider(image=image) as provider:
        sandbox = await provider.create(spec)
        maps = await sandbox.run(["python", "-c", "print(open('/proc/self/maps').read())"])
        await sandbox.close()
    assert maps.ok, maps.stderr.text
    libraries = {line.split()[-1] for line in maps.stdout.text.splitlines() if "libpython" in line}
    assert {str(Path(library).parent) for library in libraries} <= {f"{PYTHON_HOME}/lib"}


@pytest.mark.sandbox
async def test_ordinary_programs_look_for_their_libraries_where_they_are(sandbox: Sandbox) -> None:
    """Each look-up in a directory that has nothing for them would be paid at every start."""
    done = await sandbox.run(["cat", "/proc/self/maps"], env={"LD_DEBUG": "libs"})
    assert done.ok
    assert "search cache=/etc/ld.so.cache" in done.stderr.text
    assert "search path=" not in done.stderr.text


@pytest.mark.sandbox
async def test_what_is_not_there(sandbox: Sandbox) -> None:
    home = pwd.getpwuid(0).pw_dir
    paths = ["/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/sudoers", "/boot", str(ROOT), home]
    paths += ["/var/lib", "/var/run", "/run/systemd", "/sys/fs", "/sys/class", "/dev/kmsg"]
    paths += ["/dev/mem", "/dev/sda", "/dev/vda", "/dev/kvm", "/dev/fuse", "/lost+found"]
    for path in paths:
        done = await sandbox.run(["sh", "-c", 'ls -A "$1" 2>/dev/null', "sh", path])
        assert done.stdout.text == "", path
    size = await sandbox.run(["sh", "-c", "head -c 10 /proc/kcore | wc -c"])
    assert size.stdout.text.strip() == "0"


@pytest.mark.sandbox
async def test_the_top_of_the_tree_is_what_was_made(sandbox: Sandbox) -> None:
    names = {entry.name for entry in await sandbox.list("/")}
    made = {"dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp", "usr"}
    extra = {name for name in names if name in {"bin", "sbin"} or name.startswith("lib")}
    assert names == {*made, *extra, "var", "workspace"}
    for empty in ("/home", "/mnt", "/root", "/srv", "/sys", "/run", "/tmp", "/workspace"):
        assert await sandbox.list(empty) == ()
    assert {entry.name for entry in await sandbox.list("/opt")} == {"tiltyard"}


@pytest.mark.sandbox
@pytest.mark.slow
async def test_tiltyard_itself_is_not_inside(sandbox: Sandbox, python: RunPython) -> None:
    """It makes tasks with their answers. What is hidden may have a name, but is empty."""
    for module in ("tiltyard.core", "tiltyard.tasks.repair"):
        done = await sandbox.run(["python", "-c", f"import {module}"])
        assert "No module named 'tiltyard." in done.stderr.text
    found = await python(
        """
        import os
        for top, directories, files in os.walk("/"):
            if top == "/":
                directories.remove("proc")
            if top == "/opt":
                directories.remove("tiltyard")  # our own name for where Python is shown
            for name in (*files, *directories):
                whole = os.path.join(top, name)
                if "tiltyard" in name.lower():
                    hidden = os.listdir(whole) if os.path.isdir(whole) else os.path.getsize(whole)
                    print(whole, hidden)
        packages = "/opt/tiltyard/env/lib"
        for top, directories, files in os.walk(packages):
            for name in (*files, *directories):
                whole = os.path.join(top, name)
                if "tiltyard" in name.lower():
                    hidden = os.listdir(whole) if os.path.isdir(whole) else os.path.getsize(whole)
                    assert not hidden, (whole, hidden)
        """
    )
    assert found.ok, found.stderr.text
    assert found.stdout.text == ""


@pytest.mark.sandbox
@pytest.mark.slow
async def test_python_and_its_packages_work(sandbox: Sandbox) -> None:
    done = await sandbox.run(["python", "-c", "import sys, pytest; print(sys.version_info[:2])"])
    assert done.stdout.text.strip() == str(sys.version_info[:2])
    version = importlib.metadata.version("pytest")
    command = await sandbox.run(["pytest", "--version"])
    assert version in command.stdout.text + command.stderr.text, command.stderr.text


@pytest.mark.sandbox
async def test_nothing_names_where_the_host_keeps_things(sandbox: Sandbox) -> None:
    done = await sandbox.run(
        ["python", "-c", "import sys, pytest; print(sys.executable, sys.path, pytest.__file__)"]
    )
    assert done.ok
    assert str(ROOT) not in done.stdout.text
    env = await sandbox.run(["sh", "-c", "head -1 /opt/tiltyard/env/bin/*; env"])
    assert str(ROOT) not in env.stdout.text


@pytest.mark.sandbox
async def test_ordinary_programs_work(sandbox: Sandbox) -> None:
    script = """
    set -e
    id -un; hostname; date +%Z; grep -c . /etc/services; ls /usr/bin | wc -l
    awk 'BEGIN { print 6 * 7 }'
    mkdir -p a/b && cp /etc/passwd a/b/ && tar czf a.tgz a && tar tzf a.tgz | wc -l
    chown 1000:1000 a.tgz && stat -c %u a.tgz
    getent passwd nobody | cut -d: -f3
    """
    done = await sandbox.run(["sh", "-c", script])
    lines = done.stdout.text.split()
    assert lines[:3] == ["root", "sandbox", "UTC"], done.stderr.text
    assert "42" in lines
