"""Virtual time: blocking scheduler code runs as greenlets on SimPy, deterministic, with no real waiting.

A virtual thread is a greenlet. To block, it hangs its own resumption on a SimPy event and switches to the
greenlet that runs SimPy's loop. Time is whole nanoseconds. Events at the same instant happen in the order in
which they were created, which is SimPy's rule (time, priority, event number).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Generic, TypeVar

import greenlet
import simpy
from simpy.events import Event, Timeout

from impl.costs import WorkKind
from impl.errors import Deadlock, ProtocolError, RunFailed, Stalled
from impl.runtime.gil import Gil
from impl.runtime.watchdog import Watchdog, interrupt, stacks, wakeable
from impl.timeline import LockWait

T = TypeVar("T")

ORIGIN_NS = 10**18
"""Where virtual clocks start: far from any real clock, so that mixing the two fails loudly."""


class _Interrupted(BaseException):
    """Ends a run without progress. Not an Exception: no scheduler should handle it."""


class _VirtualThread(greenlet.greenlet):
    def __init__(self, function: Callable[[], None], name: str, hub: greenlet.greenlet) -> None:
        super().__init__(function, parent=hub)
        self.name = name
        self.waits_for = "its start"

    def resume(self, event: Event) -> None:
        self.switch()


_current_thread: Callable[[], _VirtualThread] = greenlet.getcurrent
"""For virtual threads only: in SimPy's loop it would return a greenlet without a name."""


class _Clock(simpy.Environment):
    """SimPy's environment, whose time can also pass with no event.

    It reads and sets SimPy's own fields, as subclasses may: `now` and `peek` would be a tenth of a run's time.
    """

    def now_ns(self) -> int:
        return self._now  # type: ignore[return-value] # SimPy says float; ours are whole from the start

    def skip_to(self, time_ns: int) -> bool:
        """Move the clock if nothing happens up to then, and return whether it is there: that spares an event and two
        switches of threads.
        """
        if time_ns > self._now:
            if self._queue and self._queue[0][0] <= time_ns:
                return False
            self._now = time_ns
        return True


class VirtualRuntime:
    """One run in virtual time.

    Args:
        has_gil: whether host work of kind spin excludes other threads (False models a free-threaded Python).
    """

    def __init__(self, *, has_gil: bool = True) -> None:
        self.env = _Clock(initial_time=ORIGIN_NS)
        self.now_ns = self.env.now_ns
        self._gil = Gil(self.env, self.wait, self._note_lock_wait) if has_gil else None
        self.lock_waits: list[LockWait] = []
        self._threads: list[_VirtualThread] = []
        self._hub = greenlet.getcurrent()
        self._failed_thread = ""

    def queue(self, name: str) -> VirtualQueue[T]:
        return VirtualQueue(self, name)

    def spawn(self, function: Callable[[], None], name: str) -> None:
        thread = _VirtualThread(lambda: self._guard(function, name), name, self._hub)
        self._threads.append(thread)
        start = self.env.timeout(0)
        assert start.callbacks is not None
        start.callbacks.append(thread.resume)

    def _guard(self, function: Callable[[], None], name: str) -> None:
        try:
            function()
        except greenlet.GreenletExit:
            raise
        except BaseException:  # whatever it is ends the run; it is only named here
            self._failed_thread = self._failed_thread or name
            raise

    def thread_name(self) -> str:
        return _current_thread().name

    def wait(self, event: Event, what: str) -> None:
        """Block the calling virtual thread until `event` happens."""
        thread = _current_thread()
        thread.waits_for = what
        event.callbacks.append(thread.resume)
        self._hub.switch()

    def sleep_until(self, time_ns: int, what: str) -> None:
        """Block the calling virtual thread until the clock reads `time_ns`, then until it may run."""
        if not self.env.skip_to(time_ns):
            self.wait(Timeout(self.env, time_ns - self.now_ns()), what)
        self.wake()

    def wake(self) -> None:
        """Take the GIL for an instant, as every thread must that comes back from a blocking call."""
        if self._gil is not None and self._gil.is_held:
            self._gil.pass_through()

    def _note_lock_wait(self, start_ns: int) -> None:
        if self.now_ns() > start_ns:
            self.lock_waits.append(LockWait(self.thread_name(), start_ns, self.now_ns()))

    def work(self, kind: WorkKind, duration_ns: int) -> None:
        if duration_ns == 0:
            return
        if kind is WorkKind.SPIN and self._gil is not None:
            self._gil.spin(duration_ns)
        else:
            self.sleep_until(self.now_ns() + duration_ns, "its own work")

    def run(self, main: Callable[[], None], *, progress: Callable[[], int], stall_s: float) -> None:
        caller = threading.current_thread()
        where = ""

        def on_stall() -> None:
            nonlocal where
            where = stacks([caller])
            interrupt(caller, _Interrupted)
            wake()

        self._hub = greenlet.getcurrent()
        self.spawn(main, "scheduler")
        try:
            with wakeable() as wake, Watchdog(stall_s, progress, on_stall):
                self.env.run()
        except _Interrupted as error:
            raise Stalled(f"nothing was recorded for {stall_s:g} s of real time; it ran in\n{where}") from error
        except RunFailed:
            raise
        except (Exception, SystemExit) as error:
            raise RunFailed(f"thread {self._failed_thread!r} failed: {type(error).__name__}: {error}") from error
        else:
            self._require_all_finished()
        finally:
            self._end_threads()

    def _require_all_finished(self) -> None:
        waiting = [thread for thread in self._threads if not thread.dead]
        if waiting:
            lines = "; ".join(f"thread {t.name!r} waits for {t.waits_for}" for t in waiting)
            raise Deadlock(
                f"nothing is left to happen, and {len(waiting)} of {len(self._threads)} threads wait: {lines}"
            )

    def _end_threads(self) -> None:
        for thread in self._threads:
            if not thread.dead and thread:
                thread.throw(greenlet.GreenletExit)
        self._threads.clear()


def _give_up(reader: Event, _: Event) -> None:
    """Wake a reader whose time is over, unless an item has woken it."""
    if not reader.triggered:
        reader.succeed()


class VirtualQueue(Generic[T]):
    """A FIFO in virtual time."""

    def __init__(self, runtime: VirtualRuntime, name: str) -> None:
        self._runtime = runtime
        self._name = name
        self._items: deque[T] = deque()
        self._readers: deque[Event] = deque()
        self._is_closed = False

    def put(self, item: T) -> None:
        if self._is_closed:
            raise ProtocolError(f"put into queue {self._name!r} after it was closed")
        self._items.append(item)
        if self._readers:
            self._wake_one()

    def close(self) -> None:
        self._is_closed = True
        for _ in range(len(self._readers)):
            self._wake_one()

    def _wake_one(self) -> None:
        while self._readers:
            reader = self._readers.popleft()
            if not reader.triggered:
                reader.succeed()
                return

    def get(self, timeout_ns: int | None = None) -> T | None:
        if self._items:
            return self._items.popleft()
        if timeout_ns is not None and timeout_ns <= 0:
            return None
        env = self._runtime.env
        deadline_ns = None if timeout_ns is None else env.now + timeout_ns
        while not self._items:
            if self._is_closed or (deadline_ns is not None and env.now >= deadline_ns):
                return None
            reader = Event(env)
            self._readers.append(reader)
            if deadline_ns is not None:
                timer = Timeout(env, deadline_ns - env.now)
                assert timer.callbacks is not None
                timer.callbacks.append(partial(_give_up, reader))
            self._runtime.wait(reader, f"queue {self._name!r}")
            self._runtime.wake()
        return self._items.popleft()

    def __iter__(self) -> Iterator[T]:
        while (item := self.get()) is not None:
            yield item
