"""Real time: host code runs in real threads, on `time.perf_counter_ns`."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

from impl.costs import WorkKind
from impl.errors import ProtocolError, RunFailed, Stalled
from impl.runtime.watchdog import Watchdog, interrupt, stacks
from impl.runtime.work import COARSE_SLEEP_RESERVE_NS, do_work, sharpen_timer
from impl.timeline import LockWait

T = TypeVar("T")

POLL_S = 0.05
"""How often the caller looks whether a run has failed."""
JOIN_S = 2.0
"""Time a thread gets to end once its run has failed; one that sits in a C call longer is left behind."""


class Aborted(BaseException):
    """Ends a thread whose run has failed elsewhere. Not an Exception: no scheduler should handle it."""


class _Signal:
    """Put into a queue to end its readers."""


_CLOSED, _ABORTED = _Signal(), _Signal()


class _RunThread(threading.Thread):
    """A thread of a run, which says itself when it has ended.

    A Ctrl-C inside `Thread.join` makes Python 3.11 and 3.12 believe that the thread has ended.
    """

    def __init__(self, target: Callable[[], None], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.has_ended = threading.Event()
        self._function = target

    def run(self) -> None:
        try:
            self._function()
        finally:
            self.has_ended.set()


class _Local(threading.local):
    """What each thread keeps of itself."""

    name: str


class ThreadRuntime:
    """One run in real threads."""

    now_ns = staticmethod(time.perf_counter_ns)

    def __init__(self) -> None:
        self._threads: list[_RunThread] = []
        self._local = _Local()
        self._lock = threading.Lock()
        self._queues: list[ThreadQueue[object]] = []
        self._error: BaseException | None = None
        self._failed_thread = ""
        self.lock_waits: list[LockWait] = []
        self.has_failed = threading.Event()

    def thread_name(self) -> str:
        # Asked for at every stage: threading.current_thread().name takes three times as long.
        try:
            return self._local.name
        except AttributeError:
            self._local.name = threading.current_thread().name
            return self._local.name

    def work(self, kind: WorkKind, duration_ns: int) -> None:
        if not duration_ns:
            return
        start_ns = time.perf_counter_ns()
        do_work(kind, duration_ns, self.require_running)
        end_ns = time.perf_counter_ns()
        # Computation lasts a given processor time: what it takes beyond that on the clock, it waited.
        if kind is not WorkKind.SLEEP and end_ns - start_ns > duration_ns:
            self.lock_waits.append(LockWait(self.thread_name(), start_ns + duration_ns, end_ns))

    def queue(self, name: str) -> ThreadQueue[T]:
        made: ThreadQueue[T] = ThreadQueue(name)
        with self._lock:
            self._queues.append(made)  # type: ignore[arg-type] # items of any type: from here it is only aborted
        if self.has_failed.is_set():
            made.abort()
        return made

    def spawn(self, function: Callable[[], None], name: str) -> None:
        thread = _RunThread(lambda: self._guard(function), name)
        with self._lock:
            self._threads.append(thread)
        thread.start()

    def _guard(self, function: Callable[[], None]) -> None:
        sharpen_timer()
        try:
            function()
        except Aborted:
            pass
        except BaseException as error:  # noqa: BLE001 - whatever ends a thread must end the run, in the caller
            self.fail(error, threading.current_thread().name)

    def fail(self, error: BaseException, thread_name: str) -> None:
        """End the run: remember its first error and wake every thread that waits."""
        with self._lock:
            if self._error is None:
                self._error, self._failed_thread = error, thread_name
            self.has_failed.set()
            queues = list(self._queues)
        for each in queues:
            each.abort()

    def require_running(self) -> None:
        """Raise Aborted in a thread whose run has failed; long waits call it now and then."""
        if self.has_failed.is_set():
            raise Aborted

    def run(self, main: Callable[[], None], *, progress: Callable[[], int], stall_s: float) -> None:
        def on_stall() -> None:
            where = stacks(self._threads)
            waits = "; ".join(f"queue {q.name!r} is waited for" for q in self._queues if q.num_readers)
            self.fail(
                Stalled(f"nothing was recorded for {stall_s:g} s; {waits or 'no thread waits for a queue'}\n{where}"),
                "",
            )

        try:
            self.spawn(main, "scheduler")
            with Watchdog(stall_s, progress, on_stall):
                self._join_all()
        except BaseException as error:
            self.fail(error, "caller")
            self._end_threads()
            raise
        if self._error is None:
            return
        self._end_threads()
        if isinstance(self._error, RunFailed):
            raise self._error
        described = f"{type(self._error).__name__}: {self._error}"
        raise RunFailed(f"thread {self._failed_thread!r} failed: {described}") from self._error

    def _join_all(self) -> None:
        """Wait for all threads, also for those that start meanwhile; return early once the run has failed."""
        index = 0
        while index < len(self._threads):
            if self._threads[index].has_ended.wait(POLL_S):
                index += 1
            elif self.has_failed.is_set():
                return

    def _end_threads(self) -> None:
        """Let the threads of a failed run end; one that computes on is interrupted, for no queue wakes it."""
        if self._have_ended_within(JOIN_S):
            return
        for thread in self._threads:
            if not thread.has_ended.is_set():
                interrupt(thread, Aborted)
        self._have_ended_within(JOIN_S)

    def _have_ended_within(self, duration_s: float) -> bool:
        deadline_s = time.monotonic() + duration_s
        return all(thread.has_ended.wait(max(0.0, deadline_s - time.monotonic())) for thread in self._threads)


class ThreadQueue(Generic[T]):
    """A FIFO between real threads, on `queue.SimpleQueue`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.num_readers = 0
        """Threads that wait here, for error messages only: updated without a lock."""
        self._items: queue.SimpleQueue[T | _Signal] = queue.SimpleQueue()
        self._is_closed = False

    def put(self, item: T) -> None:
        if self._is_closed:
            raise ProtocolError(f"put into queue {self.name!r} after it was closed")
        self._items.put(item)

    def close(self) -> None:
        self._is_closed = True
        self._items.put(_CLOSED)

    def abort(self) -> None:
        """Raise Aborted in every thread that reads from here, now or later."""
        self._items.put(_ABORTED)

    def get(self, timeout_ns: int | None = None) -> T | None:
        self.num_readers += 1
        try:
            item = self._items.get() if timeout_ns is None else self._get_until(time.perf_counter_ns() + timeout_ns)
        except queue.Empty:
            return None
        finally:
            self.num_readers -= 1
        if isinstance(item, _Signal):
            self._items.put(item)  # for the next reader
            if item is _ABORTED:
                raise Aborted
            return None
        return item

    def _get_until(self, due_ns: int) -> T | _Signal:
        """Wait as precisely as `sleep_until`: for arrivals, and for the time to close a batch.

        The last `COARSE_SLEEP_RESERVE_NS` are polled: each poll gives up core and GIL, and takes them again. Raises
        queue.Empty at `due_ns`.
        """
        coarse_ns = due_ns - COARSE_SLEEP_RESERVE_NS - time.perf_counter_ns()
        if coarse_ns > 0:
            with suppress(queue.Empty):
                return self._items.get(timeout=coarse_ns * 1e-9)
        while time.perf_counter_ns() < due_ns:
            with suppress(queue.Empty):
                return self._items.get_nowait()
            time.sleep(0)
        return self._items.get_nowait()

    def __iter__(self) -> Iterator[T]:
        while (item := self.get()) is not None:
            yield item
