"""What a sandbox's file system is made of, as records for the launcher."""

import hashlib
import importlib.metadata
import os
import struct
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from tiltyard.core.errors import SandboxRefused
from tiltyard.sandbox.native.loader_cache import (
    CacheUnreadable,
    lacking,
    read_entries,
    with_first,
)
from tiltyard.sandbox.protocol import text

LOADER_CACHE = Path("/etc/ld.so.cache")
PYTHON_HOME = "/opt/tiltyard/python"
ENVIRONMENT_HOME = "/opt/tiltyard/env"
PACKAGES_HOME = (
    f"{ENVIRONMENT_HOME}/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
)


class RecordKind(IntEnum):
    """Kinds of records; the same numbers as IMAGE_* in native/rootfs.h."""

    DIRECTORY = 1
    LINK = 2
    FILE = 3
    OWN_FILE = 4
    BIND = 5
    HIDE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One thing in the image. What `argument` means depends on the kind: see native/rootfs.h."""

    kind: RecordKind
    path: str
    argument: bytes = b""
    mode: int = 0o755


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A file system that sandboxes start from."""

    name: str
    records: tuple[Record, ...]
    environment: Mapping[str, str]
    """What programs see by default."""

    @property
    def sources(self) -> tuple[Path, ...]:
        """The host's directories that it shows."""
        return tuple(
            Path(os.fsdecode(record.argument))
            for record in self.records
            if record.kind is RecordKind.BIND
        )

    @property
    def digest(self) -> str:
        """Of what is shown and how; not of the host's own files that are shown as they are."""
        digest = hashlib.sha256(self.description())
        digest.update(repr(sorted(self.environment.items())).encode())
        return f"{self.name}@sha256:{digest.hexdigest()[:32]}"

    def description(self) -> bytes:
        """The records as the launcher reads them."""
        return b"".join(
            struct.pack("<II", record.kind, record.mode) + text(record.path) + text(record.argument)
            for record in self.records
        )


_USERS = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
_GROUPS = "root:x:0:\nnogroup:x:65534:\n"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PUBLIC_ETC = (
    *("mime.types", "protocols", "services"),
    "ssl/certs/ca-certificates.crt",
)
_SERVICES = "nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\n"


def host_image(*, loader_cache: Path = LOADER_CACHE) -> Image:
    """The curated view of this machine: `/usr`, a synthetic `/etc`, and this Python environment.

    Nothing of home directories, of other trees, or of the machine's own `/etc` is in it, and
    Tiltyard itself is hidden, because it can make the reference solutions of generated tasks.
    Programs find their libraries by the `loader_cache`, and this Python by what is put into it; by
    LD_LIBRARY_PATH where it is none that can be read.
    Raises `SandboxRefused` when the machine has no `/usr`.
    """
    if not Path("/usr/bin").is_dir():
        raise SandboxRefused("this machine has no /usr/bin to show in the host image.")
    cache = loader_cache.read_bytes() if loader_cache.is_file() else b""
    libraries = _python_libraries()
    found_by_cache = _with_python(cache, libraries)
    records = [
        *_directories(),
        *_etc(),
        *_loader(found_by_cache or cache, libraries),
        Record(kind=RecordKind.BIND, path="/usr", argument=b"/usr"),
        *_hidden_below(Path("/usr")),
        *_top_level(),
        *_python(),
    ]
    environment = {
        "PATH": f"{ENVIRONMENT_HOME}/bin:{_SYSTEM_PATH}",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "TMPDIR": "/tmp",  # noqa: S108 - inside the sandbox
    }
    if libraries and not found_by_cache:
        environment["LD_LIBRARY_PATH"] = f"{PYTHON_HOME}/lib"
    return Image(name="host", records=tuple(records), environment=environment)


def _directories() -> Iterator[Record]:
    modes = {"/workspace": 0o755, "/tmp": 0o1777, "/root": 0o700}  # noqa: S108 - inside the sandbox
    plain = ("/dev", "/etc", "/home", "/mnt", "/opt", "/proc", "/run", "/srv", "/sys", "/var")
    for path in (*plain, "/var/log"):
        yield Record(kind=RecordKind.DIRECTORY, path=path)
    for path, mode in (*modes.items(), ("/var/tmp", 0o1777)):  # noqa: S108 - inside the sandbox
        yield Record(kind=RecordKind.DIRECTORY, path=path, mode=mode)


def _etc() -> Iterator[Record]:
    files = {
        "passwd": _USERS,
        "group": _GROUPS,
        "hostname": "sandbox\n",
        "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "resolv.conf": "",
    }
    for name, content in files.items():
        yield Record(
            kind=RecordKind.OWN_FILE, path=f"/etc/{name}", argument=content.encode(), mode=0o644
        )
    name, content = _SERVICES
    yield Record(kind=RecordKind.FILE, path=f"/etc/{name}", argument=content.encode(), mode=0o644)
    # Public files that programs of /usr need to find their libraries, types and certificates.
    for shared in _PUBLIC_ETC:
        source = Path("/etc") / shared
        if source.is_file():
            yield Record(
                kind=RecordKind.FILE, path=str(source), argument=source.read_bytes(), mode=0o644
            )
    yield from _links_in(Path("/etc/alternatives"))


def _python_libraries() -> dict[str, str]:
    """The paths inside, by name, of what a shared build of this Python finds in its own `lib`."""
    base = Path(sys.base_prefix).resolve()
    if _in_usr(base) or not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        return {}
    found = sorted(path.name for path in (base / "lib").glob("lib*.so*"))
    return {name: f"{PYTHON_HOME}/lib/{name}" for name in found}


def _with_python(cache: bytes, libraries: Mapping[str, str]) -> bytes | None:
    """The loader's cache with this Python's libraries; None when it is none to put them into."""
    try:
        entries = read_entries(cache)
        for entry in entries:
            if entry.name == "libc.so.6" and _runs_with(Path(entry.path)):
                own = lacking(entries, libraries, machine=entry.machine)
                return with_first(cache, own, machine=entry.machine)
    except CacheUnreadable:
        return None
    return None


def _runs_with(library: Path) -> bool:
    """Whether a library is for the machine that this Python is for: a cache may have others too."""
    heads = []
    for path in (library, Path(sys.executable)):
        try:
            with path.open("rb") as file:
                head = file.read(20)
        except OSError:
            return False
        heads.append((head[:6], head[18:20]))  # ELF, word size and byte order; the machine
    return heads[0] == heads[1]


def _loader(cache: bytes, libraries: Mapping[str, str]) -> Iterator[Record]:
    """What the loader finds libraries by, and what `ldconfig` makes that from anew."""
    if cache:
        yield Record(kind=RecordKind.FILE, path=str(LOADER_CACHE), argument=cache, mode=0o644)
    if libraries:
        conf = f"{PYTHON_HOME}/lib\n".encode()
        yield Record(kind=RecordKind.FILE, path="/etc/ld.so.conf", argument=conf, mode=0o644)


def _links_in(directory: Path) -> Iterator[Record]:
    for link in sorted(directory.iterdir()) if directory.is_dir() else ():
        if link.is_symlink():
            yield Record(
                kind=RecordKind.LINK, path=str(link), argument=os.fsencode(link.readlink())
            )


def _top_level() -> Iterator[Record]:
    """`/bin`, `/lib` and their like: links into `/usr` on a merged system, else directories."""
    for path in (Path("/bin"), Path("/sbin"), *sorted(Path("/").glob("lib*"))):
        if path.is_symlink():
            yield Record(
                kind=RecordKind.LINK, path=str(path), argument=os.fsencode(path.readlink())
            )
        elif path.is_dir():
            yield Record(kind=RecordKind.BIND, path=str(path), argument=os.fsencode(path))


def _python() -> Iterator[Record]:
    """This interpreter and its packages, at paths that say nothing of where the host keeps them."""
    base = Path(sys.base_prefix).resolve()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    program = Path(os.path.realpath(sys.executable))
    if not _in_usr(base):
        yield Record(kind=RecordKind.BIND, path=PYTHON_HOME, argument=os.fsencode(base))
        yield from _hidden_below(base)
        program = Path(PYTHON_HOME) / program.relative_to(base)
    for name in ("python", "python3", f"python{version}"):
        yield Record(
            kind=RecordKind.LINK,
            path=f"{ENVIRONMENT_HOME}/bin/{name}",
            argument=os.fsencode(program),
        )
    settings = f"home = {program.parent}\ninclude-system-site-packages = false\n"
    yield Record(
        kind=RecordKind.FILE,
        path=f"{ENVIRONMENT_HOME}/pyvenv.cfg",
        argument=settings.encode(),
        mode=0o644,
    )
    packages = Path(sysconfig.get_path("purelib")).resolve()
    yield from _commands(packages)
    yield Record(
        kind=RecordKind.BIND,
        path=PACKAGES_HOME,
        argument=os.fsencode(packages),
    )
    yield from _hidden_below(packages)


def _commands(packages: Path) -> Iterator[Record]:
    """The environment's commands (pytest, ruff, ...), whose own scripts name the host's paths."""
    found = importlib.metadata.distributions(path=[str(packages)])
    for distribution in found:
        if distribution.name == "tiltyard":
            continue
        for entry in distribution.entry_points:
            if entry.group != "console_scripts" or "/" in entry.name:
                continue
            script = (
                f"#!{ENVIRONMENT_HOME}/bin/python\nimport sys\nfrom {entry.module} import "
                f"{entry.attr.partition('.')[0]}\nsys.exit({entry.attr}())\n"
            )
            yield Record(
                kind=RecordKind.FILE,
                path=f"{ENVIRONMENT_HOME}/bin/{entry.name}",
                argument=script.encode(),
            )


def _hidden_below(source: Path) -> Iterator[Record]:
    """What of Tiltyard lies below a directory that is shown."""
    places = {Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib")}
    for place in sorted(places):
        if source != place and source not in place.parents:
            continue
        for found in sorted(_of_tiltyard(place)):
            yield Record(
                kind=RecordKind.HIDE,
                path="/",
                argument=os.fsencode(found.relative_to(source)),
            )


def _of_tiltyard(packages: Path) -> Sequence[Path]:
    found = (*packages.glob("*tiltyard*"), *packages.glob("__pycache__/*tiltyard*"))
    return [path for path in found if not path.is_symlink()]


def _in_usr(path: Path) -> bool:
    return path.is_relative_to("/usr")
