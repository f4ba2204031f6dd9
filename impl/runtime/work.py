"""Host work in real time: precise sleeps, computation that holds the GIL, computation that releases it."""

from __future__ import annotations

import ctypes
import hashlib
import sys
import threading
import time
from collections.abc import Callable

from impl.costs import WorkKind

COARSE_SLEEP_RESERVE_NS = 150_000
"""A sleep ends up to this much late; the rest of a wait is spent giving up the core again and again."""
LONGEST_SLEEP_NS = 100_000_000
PR_SET_TIMERSLACK = 29
"""Source: prctl(2)."""
_CALIBRATION_ITERATIONS = 20_000


def sharpen_timer() -> None:
    """Let the calling thread's sleeps end as exactly as the kernel can (Linux; elsewhere nothing changes)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)


def sleep_until(time_ns: int, check: Callable[[], None]) -> None:
    """Sleep until `time.perf_counter_ns()` reads `time_ns`, without holding the GIL meanwhile.

    `check` is called every `LONGEST_SLEEP_NS`; it raises to end the sleep.
    """
    while (remaining_ns := time_ns - time.perf_counter_ns()) > COARSE_SLEEP_RESERVE_NS:
        check()
        time.sleep(min(remaining_ns - COARSE_SLEEP_RESERVE_NS, LONGEST_SLEEP_NS) * 1e-9)
    while time.perf_counter_ns() < time_ns:
        time.sleep(0)


def spin(duration_ns: int) -> None:
    """Compute in Python for `duration_ns` of this thread's processor time."""
    end_ns = time.thread_time_ns() + duration_ns
    while time.thread_time_ns() < end_ns:
        pass


class NativeWork:
    """Key stretching in OpenSSL, which releases the GIL for the whole call."""

    def __init__(self) -> None:
        self._ns_per_iteration = 0.0
        self._lock = threading.Lock()

    def __call__(self, duration_ns: int) -> None:
        """Compute for `duration_ns` of this thread's processor time."""
        end_ns = time.thread_time_ns() + duration_ns
        self._calibrate()
        while (remaining_ns := end_ns - time.thread_time_ns()) > 0:
            _stretch(max(1, int(0.9 * remaining_ns / self._ns_per_iteration)))

    def _calibrate(self) -> None:
        with self._lock:
            if self._ns_per_iteration == 0.0:
                start_ns = time.thread_time_ns()
                _stretch(_CALIBRATION_ITERATIONS)
                self._ns_per_iteration = (time.thread_time_ns() - start_ns) / _CALIBRATION_ITERATIONS


def _stretch(iterations: int) -> None:
    hashlib.pbkdf2_hmac("sha256", b"overlap", b"salt", iterations)


_native = NativeWork()


def do_work(kind: WorkKind, duration_ns: int, check: Callable[[], None]) -> None:
    """Spend a stage's time in the calling thread; `check` raises to end a sleep early."""
    if kind is WorkKind.SLEEP:
        sleep_until(time.perf_counter_ns() + duration_ns, check)
    elif kind is WorkKind.SPIN:
        spin(duration_ns)
    else:
        _native(duration_ns)
