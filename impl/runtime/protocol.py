"""What a run asks of its runtime; the virtual and the real one keep the same rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from impl.costs import WorkKind
from impl.timeline import LockWait

T = TypeVar("T")


class Queue(Protocol[T]):
    """A FIFO between threads."""

    def put(self, item: T) -> None:
        """Append an item. Raises ProtocolError on a closed queue."""

    def get(self, timeout_ns: int | None = None) -> T | None:
        """Wait for an item; None once the queue is closed and empty, or after `timeout_ns` nanoseconds."""

    def close(self) -> None:
        """Let every reader finish: after the last item `get` returns None and iteration ends."""

    def __iter__(self) -> Iterator[T]:
        """Yield items until the queue is closed and empty."""


class Runtime(Protocol):
    """Time, threads, queues and host work."""

    lock_waits: list[LockWait]
    """Filled by the runtime: when its threads waited for the GIL."""

    def now_ns(self) -> int:
        """Return the time on this runtime's clock; clocks of different runtimes have different origins."""

    def queue(self, name: str) -> Queue[T]:
        """Make a queue; the name appears in error messages."""

    def spawn(self, function: Callable[[], None], name: str) -> None:
        """Start a thread that belongs to the run."""

    def thread_name(self) -> str:
        """Return the name of the calling thread."""

    def work(self, kind: WorkKind, duration_ns: int) -> None:
        """Keep the calling thread busy (or asleep) for a stage."""

    def run(self, main: Callable[[], None], *, progress: Callable[[], int], stall_s: float) -> None:
        """Run `main` as the thread "scheduler" and wait for it and for all threads it started.

        Args:
            main: what to run.
            progress: a number that changes as long as the run moves.
            stall_s: seconds of real time without progress after which the run has failed.

        Raises:
            RunFailed: if a thread raised, if all of them wait for ever, or if the run stalled.
        """
