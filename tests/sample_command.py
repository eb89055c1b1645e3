"""Where the installed command is, for tests that run it."""

import sys
from pathlib import Path

COMMAND = Path(sys.executable).with_name("tiltyard")
