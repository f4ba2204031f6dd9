from __future__ import annotations

import itertools
import threading
import time

from impl.runtime.watchdog import Watchdog, interrupt, stacks


def test_a_standstill_is_reported_once() -> None:
    stalls: list[float] = []
    seen = threading.Event()

    def on_stall() -> None:
        stalls.append(time.monotonic())
        seen.set()

    with Watchdog(0.02, lambda: 7, on_stall):
        assert seen.wait(10)
        time.sleep(0.08)
    assert len(stalls) == 1


def test_progress_is_never_reported() -> None:
    stalls: list[int] = []
    count = itertools.count()
    with Watchdog(0.005, lambda: next(count), lambda: stalls.append(1)):
        while next(count) < 10:
            time.sleep(0.005)
    assert stalls == []


def test_a_watchdog_ends_with_what_it_watches() -> None:
    before = threading.active_count()
    with Watchdog(1000, lambda: 0, lambda: None):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


class Stop(BaseException):
    """Ends a thread of these tests."""


def test_stacks_name_each_thread_and_interrupt_ends_a_loop() -> None:
    is_running = threading.Event()
    ended_by: list[BaseException] = []

    def loops_for_ever() -> None:
        try:
            is_running.set()
            while True:
                pass
        except Stop as error:
            ended_by.append(error)

    thread = threading.Thread(target=loops_for_ever, name="looper", daemon=True)
    thread.start()
    assert is_running.wait(10)
    text = stacks([thread])
    assert "thread 'looper':" in text
    assert "loops_for_ever" in text
    interrupt(thread, Stop)
    thread.join(10)
    assert not thread.is_alive()
    assert len(ended_by) == 1
    assert stacks([thread]) == "", "a thread that has ended stands nowhere"
