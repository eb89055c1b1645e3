"""Where the C programs are that were built with the package."""

import importlib.metadata
from pathlib import Path

from tiltyard.core.errors import SandboxRefused


def native_program(name: str) -> Path:
    """The path of a built program. Raises `SandboxRefused` when the package was not built.

    The package's own record of installed files is asked, because it is right for an ordinary and
    for an editable install alike; in the latter the sources and the built files lie apart.
    """
    wanted = f"tiltyard/sandbox/native/bin/{name}"
    try:
        files = importlib.metadata.files("tiltyard") or ()
    except importlib.metadata.PackageNotFoundError:
        files = ()
    for file in files:
        if file.as_posix() == wanted:
            path = Path(str(file.locate()))
            if path.is_file():
                return path
    raise SandboxRefused(
        f"{name} was not built.", fix="install the package: `make` or `pip install .`"
    )
