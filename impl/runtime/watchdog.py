"""Ends a run in which nothing moves any more in real time, and says where every thread stands."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


class Watchdog:
    """Calls `on_stall` if what `progress` returns has not changed for `stall_s` seconds."""

    def __init__(self, stall_s: float, progress: Callable[[], int], on_stall: Callable[[], None]) -> None:
        self._stall_s = stall_s
        self._progress = progress
        self._on_stall = on_stall
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        try:
            self._thread.start()
        except BaseException:
            self._stop.set()  # a Ctrl-C while it starts must not leave it to watch for ever
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        seen = self._progress()
        while not self._stop.wait(self._stall_s):
            now = self._progress()
            if now == seen:
                self._on_stall()
                return
            seen = now


def stacks(threads: Iterable[threading.Thread]) -> str:
    """Return where each thread stands, innermost call last."""
    frames = sys._current_frames()
    parts = []
    for thread in threads:
        frame = frames.get(thread.ident or -1)
        if frame is not None:
            calls = "".join(traceback.format_stack(frame, limit=8))
            parts.append(f"thread {thread.name!r}:\n{calls}")
    return "\n".join(parts)


@contextmanager
def wakeable() -> Iterator[Callable[[], None]]:
    """Yield a function that wakes the calling thread from a blocking call, where that can be done.

    A signal's handler runs in Python, and there an exception of `interrupt` takes effect; only the main thread has
    handlers, and only POSIX can send it a signal. Elsewhere the function does nothing.
    """
    thread = threading.current_thread()
    if thread is not threading.main_thread() or thread.ident is None or not hasattr(signal, "pthread_kill"):
        yield lambda: None
        return
    ident = thread.ident
    previous = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        yield lambda: signal.pthread_kill(ident, signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL if previous is None else previous)


def interrupt(thread: threading.Thread, error: type[BaseException]) -> None:
    """Raise `error` in a thread at its next Python instruction; inside a C call it stays there (see `wakeable`)."""
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(error))
