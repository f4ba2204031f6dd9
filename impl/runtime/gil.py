"""A model of CPython's GIL for the virtual runtime.

Work of kind spin runs only while it holds the lock. A thread that wants the lock waits `SWITCH_INTERVAL_NS`;
if nobody let go of it meanwhile, it asks the holder to, and the holder goes to the end of the line. A thread
that wakes from a blocking call takes the lock for an instant before it goes on.

Source: CPython, Python/ceval_gil.c (take_gil, drop_gil); the default of sys.getswitchinterval() is 5 ms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import simpy

SWITCH_INTERVAL_NS = 5_000_000


class Gil:
    """The lock.

    Args:
        env: SimPy's.
        wait: `wait(event, what)` suspends the calling virtual thread until the event has happened.
        waited: `waited(start_ns)` is told by a thread that has waited for the lock since then.
    """

    def __init__(
        self,
        env: simpy.Environment,
        wait: Callable[[simpy.Event, str], object],
        waited: Callable[[int], None],
    ) -> None:
        self._env = env
        self._wait = wait
        self._waited = waited
        self._waiting: deque[simpy.Event] = deque()
        self._drop: simpy.Event | None = None
        """While the lock is held: the event that asks the holder to let go."""

    @property
    def is_held(self) -> bool:
        """Whether a thread computes in Python right now."""
        return self._drop is not None

    def _acquire(self) -> None:
        # Those in line come first, also at the instant at which the lock changes hands.
        if self._drop is None and not self._waiting:
            self._drop = self._env.event()
            return
        turn = self._env.event()
        self._waiting.append(turn)
        self._ask_after_interval()
        start_ns = int(self._env.now)
        self._wait(turn, "the GIL")
        self._waited(start_ns)

    def _ask_after_interval(self) -> None:
        asked_of = self._drop
        timer = self._env.timeout(SWITCH_INTERVAL_NS)

        def ask(_: simpy.Event) -> None:
            if self._drop is asked_of:
                if asked_of is not None and not asked_of.triggered:
                    asked_of.succeed()
            elif self._waiting:
                self._ask_after_interval()

        assert timer.callbacks is not None
        timer.callbacks.append(ask)

    def _release(self) -> None:
        self._drop = None
        if self._waiting:
            # Handed over, not up for grabs: CPython's forced switching does the same.
            self._drop = self._env.event()
            self._waiting.popleft().succeed()

    def pass_through(self) -> None:
        """Take the lock for an instant, as a thread does that wakes up."""
        self._acquire()
        self._release()

    def spin(self, duration_ns: int) -> None:
        """Compute for `duration_ns` nanoseconds of holding the lock."""
        remaining_ns = duration_ns
        self._acquire()
        while remaining_ns > 0:
            drop = self._drop
            assert drop is not None, "the lock is held here"
            start_ns = self._env.now
            self._wait(self._env.timeout(remaining_ns) | drop, "its own computation")
            remaining_ns -= int(self._env.now - start_ns)
            if remaining_ns > 0:
                self._release()
                self._acquire()
        self._release()
