"""The one event loop, in a thread of its own, on which the twins' coroutines run.

Theory of operation. The first twin that is opened starts the thread, the last that is closed ends
and joins it, so a process in which nothing is open has no thread of ours. Every call is a task of
that loop's task group; the caller's thread waits for it. What interrupts the wait (Ctrl-C, an
exception out of a signal's function) cancels the task, and is raised on only when the task has
ended, so that nothing goes on behind the caller's back; a second interruption waits no more.

After a fork the child has a copy of the objects and no thread: it is refused, and leaving a block
there does nothing, because what is open belongs to the parent.
"""

import asyncio
import atexit
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

from tiltyard.core.errors import SandboxClosed, SandboxError

EXIT_JOIN_S = 10.0
"""How long the interpreter's exit waits for what was left open."""

T = TypeVar("T")
U = TypeVar("U")


class WrongProcess(SandboxError):
    """It was opened by another process, of which this one is a fork. Open it anew in this one."""


class WrongThread(SandboxError):
    """It was called from the event loop's own thread, which would wait for itself."""


class Call(Generic[T]):
    """One coroutine on the loop, and a thread that waits for its end."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self.result: Future[T] = Future()
        self._make = make
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[None] | None = None

    def begin(self, group: asyncio.TaskGroup) -> None:
        """On the loop."""
        self._task = group.create_task(self._run(), context=self._context)
        self._task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """On the loop. The loop is told things in order, so one without a task never begins."""
        if self._task is not None:
            self._task.cancel()
        elif not self.result.done():
            self.result.set_exception(asyncio.CancelledError())

    async def _run(self) -> None:
        """Whatever is raised goes to the caller, and nothing to the task group."""
        try:
            value = await self._make()
        except BaseException as error:  # noqa: BLE001 - it is raised in the caller's thread
            self.result.set_exception(error)
        else:
            self.result.set_result(value)

    def _ended(self, _task: "asyncio.Task[None]") -> None:
        if not self.result.done():  # cancelled before its first step
            self.result.set_exception(asyncio.CancelledError())


class Portal:
    """The loop and its thread. `lease` gives the one of this process."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._open = True
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._serve, name="tiltyard-sync", daemon=True)
        self._thread.start()
        self._loop = self._ready.result()

    @property
    def open(self) -> bool:
        """False when it has ended: then nothing runs on its loop, and nothing ever will.

        Raises `WrongProcess` in a fork.
        """
        if self.foreign:
            raise WrongProcess(
                f"it was opened by process {self._pid}, of which process {os.getpid()} is a fork.",
                fix="open a provider in each process, or start processes with the spawn method.",
            )
        return self._open

    @property
    def foreign(self) -> bool:
        """True in a fork of the process that it belongs to."""
        return self._pid != os.getpid()

    def call(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Runs a coroutine to its end and raises what it raises.

        Also raises `SandboxClosed` when it has ended, `WrongProcess` and `WrongThread`.
        """
        call = Call(make)
        return self.wait(call, call.result)

    def wait(self, call: Call[T], result: Future[U]) -> U:
        """Starts a call and waits for a result of it. What interrupts that also ends the call."""
        if threading.current_thread() is self._thread:
            raise WrongThread(
                "a twin was called on the event loop's own thread.",
                fix="call it from another thread, or await the asynchronous class there.",
            )
        if not self.open:
            raise _closed()
        try:
            # An interruption may come anywhere in here, also before the loop was told.
            if not self.post(lambda: call.begin(self._group)):
                call.result.set_exception(_closed())
            return result.result()
        except asyncio.CancelledError:
            # Nobody in this thread did it: somebody in another one closed everything.
            raise _closed() from None
        except BaseException:
            self._end_call(call)
            raise

    def _end_call(self, call: Call[T]) -> None:
        if not call.result.done() and self.post(call.cancel):
            with suppress(asyncio.CancelledError, Exception):
                call.result.result()

    def post(self, act: Callable[[], object]) -> bool:
        """Has the loop call a plain function soon; False when it has ended."""
        if not self.open:  # before the lock: in a fork its holder may not be there to free it
            return False
        with self._lock:
            if self._open:
                self._loop.call_soon_threadsafe(act)
            return self._open

    def stop(self, *, timeout_s: float | None = None) -> None:
        """Ends the loop, cancelling what still runs on it, and joins the thread."""
        with self._lock:
            if self._open:
                self._open = False
                self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(timeout_s)

    def _serve(self) -> None:
        with asyncio.Runner() as runner:
            runner.run(self._main())

    async def _main(self) -> None:
        self._end = asyncio.Event()
        async with asyncio.TaskGroup() as self._group:
            self._ready.set_result(asyncio.get_running_loop())
            await self._end.wait()
            # The loop was told of every call before it was told of the end: all are tasks by now.
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()


class _Leases:
    """Who uses this process's portal."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.portal: Portal | None = None
        self.count = 0
        self.prepared = False

    def forget(self) -> None:
        """In a fork: the thread is the parent's, and so may be the holder of the lock."""
        self.lock = threading.Lock()
        self.portal = None
        self.count = 0

    def stop(self) -> None:
        """At the interpreter's exit: for what nobody closed."""
        if self.portal is not None:
            self.portal.stop(timeout_s=EXIT_JOIN_S)


_leases = _Leases()


def lease() -> Portal:
    """This process's portal, started when nobody has it; give it back with `release`."""
    if not _leases.prepared:
        os.register_at_fork(after_in_child=_leases.forget)
        atexit.register(_leases.stop)
        _leases.prepared = True
    with _leases.lock:
        if _leases.portal is None:
            _leases.portal = Portal()
        _leases.count += 1
        return _leases.portal


def release(portal: Portal) -> None:
    """Gives a portal back; who is last ends it. Nothing in a fork."""
    if portal.foreign:
        return
    with _leases.lock:
        _leases.count -= 1
        if _leases.count:
            return
        _leases.portal = None
    portal.stop()


def _closed() -> SandboxClosed:
    return SandboxClosed("everything was closed.", fix="use it inside its `with`.")
