"""The sandbox room without `await`: for scripts, notebooks and all that has no event loop.

Its classes are twins of the asynchronous ones: the same names, arguments, results and exceptions.
`scripts/make_twins.py` makes them, and this file. Their coroutines run on one event loop in a
thread of its own, which lives while anything is open; they work in any thread, and inside a running
loop. A room of its own above the composition root: it decides nothing, and nothing below knows it.
"""

from tiltyard.sync.portal import WrongProcess, WrongThread
from tiltyard.sync.twin import OpenTwin, Twin
from tiltyard.sync.twins.chunks import Chunks
from tiltyard.sync.twins.egress import Egress
from tiltyard.sync.twins.files import Files
from tiltyard.sync.twins.nativeprovider import NativeProvider
from tiltyard.sync.twins.pool import Pool
from tiltyard.sync.twins.process import Process
from tiltyard.sync.twins.sandbox import Sandbox
from tiltyard.sync.twins.setups import SetUps
from tiltyard.sync.twins.snapshot import Snapshot

__all__ = [
    "Chunks",
    "Egress",
    "Files",
    "NativeProvider",
    "OpenTwin",
    "Pool",
    "Process",
    "Sandbox",
    "SetUps",
    "Snapshot",
    "Twin",
    "WrongProcess",
    "WrongThread",
]
