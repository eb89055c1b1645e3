"""The daemon's program: `python -m tiltyard.cli.yard DIRECTORY START_LOCK_FD`.

Started by `tiltyard sandbox create`. It says on its standard output, in one message, whether it is
ready or why not; after that it has no terminal and no output but its log.
"""

import asyncio
import fcntl
import os
import sys
from pathlib import Path

from tiltyard.cli.logs import set_up_logs
from tiltyard.cli.yard.daemon import release_start_lock, serve
from tiltyard.cli.yard.place import opened
from tiltyard.cli.yard.wire import Done, Failed
from tiltyard.config import load_settings
from tiltyard.core.errors import TiltyardError


def main() -> int:
    directory, start_lock = Path(sys.argv[1]), int(sys.argv[2])
    fcntl.fcntl(start_lock, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
    # The launcher must not inherit the pipe, or its reader would wait for the launcher's end.
    answer = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    told = False

    def tell(message: Done | Failed) -> None:
        nonlocal told
        if not told:
            told = True
            release_start_lock(place, start_lock)
            os.write(answer, message.model_dump_json().encode() + b"\n")
            os.close(answer)

    with opened(directory) as place:
        try:
            set_up_logs(load_settings().log_level)
            asyncio.run(serve(place, ready=lambda: tell(Done())))
        except TiltyardError as error:
            tell(Failed(message=error.message, fix=error.fix, usage=False))
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
