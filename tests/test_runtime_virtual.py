"""Virtual time: order, clocks, queues, and how runs that cannot end are ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

from impl.batching import Continuous
from impl.costs import WorkKind
from impl.device.protocol import DeviceSettings, GilReleases
from impl.device.virtual import VirtualDevice
from impl.engine import Engine
from impl.errors import Deadlock, ProtocolError, RunFailed, Stalled
from impl.runtime.protocol import Queue
from impl.runtime.virtual import ORIGIN_NS, VirtualRuntime
from impl.workload import Lengths, burst, from_gaps
from tests import faulty
from tests.build import MS, attempt, scenario
from tests.build import batch as build_batch

T = TypeVar("T")

SLEEP, SPIN = WorkKind.SLEEP, WorkKind.SPIN


def play(main: Callable[[VirtualRuntime], None], *, has_gil: bool = True, stall_s: float = 10) -> VirtualRuntime:
    """Run `main` as the thread "scheduler"."""
    runtime = VirtualRuntime(has_gil=has_gil)
    runtime.run(lambda: main(runtime), progress=lambda: 0, stall_s=stall_s)
    return runtime


def test_things_at_the_same_instant_happen_in_order_of_creation() -> None:
    happened: list[str] = []

    def main(runtime: VirtualRuntime) -> None:
        def sleeper(name: str, duration_ns: int) -> Callable[[], None]:
            def body() -> None:
                happened.append(f"{name} starts")
                runtime.work(SLEEP, duration_ns)
                happened.append(name)

            return body

        for name, duration_ns in (("a", 5), ("b", 5), ("c", 3), ("d", 5)):
            runtime.spawn(sleeper(name, duration_ns), name)

    play(main)
    assert happened == ["a starts", "b starts", "c starts", "d starts", "c", "a", "b", "d"]


def test_readers_of_a_queue_are_served_in_the_order_in_which_they_came() -> None:
    got: list[tuple[str, int | None]] = []

    def main(runtime: VirtualRuntime) -> None:
        queue: Queue[int] = runtime.queue("numbers")
        for name in ("a", "b", "c"):
            runtime.spawn(lambda name=name: got.append((name, queue.get())), name)
        runtime.work(SLEEP, 10)
        for number in (1, 2, 3):
            queue.put(number)

    play(main)
    assert got == [("a", 1), ("b", 2), ("c", 3)]


def test_time_is_whole_nanoseconds_far_from_any_real_clock() -> None:
    seen: list[int] = []

    def main(runtime: VirtualRuntime) -> None:
        queue: Queue[int] = runtime.queue("timer")
        for duration_ns in (1, 333, 10**9 + 7, 10**15 + 1):
            runtime.work(SLEEP, duration_ns)
            queue.get(duration_ns)
            runtime.work(SPIN, duration_ns)
            seen.append(runtime.now_ns())

    play(main)
    assert seen[0] == ORIGIN_NS + 3
    assert seen[-1] == ORIGIN_NS + 3 * (1 + 333 + 10**9 + 7 + 10**15 + 1)
    assert all(type(now_ns) is int for now_ns in seen)


def test_a_timeout_ends_a_wait_at_its_time_and_leaves_the_item_to_others() -> None:
    seen: list[object] = []

    def main(runtime: VirtualRuntime) -> None:
        queue: Queue[str] = runtime.queue("q")

        def producer() -> None:
            runtime.work(SLEEP, 100)
            queue.put("late")

        runtime.spawn(producer, "producer")
        seen.extend((queue.get(timeout_ns), runtime.now_ns() - ORIGIN_NS) for timeout_ns in (0, -5, 40, 59, 1000))

    play(main)
    assert seen == [(None, 0), (None, 0), (None, 40), (None, 99), ("late", 100)]


def test_an_item_that_comes_at_the_instant_of_the_timeout_is_not_lost() -> None:
    seen: list[object] = []

    def main(runtime: VirtualRuntime) -> None:
        queue: Queue[str] = runtime.queue("q")

        def producer() -> None:
            runtime.work(SLEEP, 50)
            queue.put("just in time")

        runtime.spawn(producer, "producer")
        seen.append(queue.get(50) or queue.get(0))

    play(main)
    assert seen == ["just in time"]


def test_a_closed_queue_gives_what_it_holds_then_ends_every_reader() -> None:
    seen: list[object] = []

    def main(runtime: VirtualRuntime) -> None:
        queue: Queue[int] = runtime.queue("q")
        for name in ("a", "b"):
            runtime.spawn(lambda name=name: seen.append((name, list(queue))), name)
        runtime.work(SLEEP, 1)
        queue.put(1)
        queue.put(2)
        queue.close()
        with pytest.raises(ProtocolError, match="put into queue 'q' after it was closed"):
            queue.put(3)
        runtime.work(SLEEP, 1)
        seen.append(queue.get())

    play(main)
    assert seen == [("a", [1, 2]), ("b", []), None]


def test_a_deadlock_names_every_thread_and_what_it_waits_for() -> None:
    with pytest.raises(Deadlock) as caught:
        attempt(faulty.waits_in_a_circle)
    told = str(caught.value)
    assert "nothing is left to happen, and 2 of 2 threads wait: " in told
    assert "thread 'scheduler' waits for queue 'first'" in told
    assert "thread 'helper' waits for queue 'second'" in told
    assert "batch 0 (request 0)" in told


@pytest.mark.parametrize(
    ("scheduler", "thread"), [(faulty.raises, "scheduler"), (faulty.raises_in_helper, "helper")], ids=["main", "helper"]
)
def test_an_exception_ends_the_run_and_names_the_thread(scheduler: Callable[[Engine], None], thread: str) -> None:
    with pytest.raises(RunFailed, match=f"thread '{thread}' failed: ValueError: no kernel for bf16") as caught:
        attempt(scheduler)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_scheduler_that_exits_fails_and_does_not_end_python() -> None:
    with pytest.raises(RunFailed, match="thread 'scheduler' failed: SystemExit: 3"):
        attempt(faulty.exits)


def test_a_keyboard_interrupt_reaches_the_caller_and_ends_the_threads() -> None:
    ended: list[str] = []

    def main(runtime: VirtualRuntime) -> None:
        queue: Queue[int] = runtime.queue("q")

        def waits() -> None:
            try:
                queue.get()
            finally:
                ended.append("helper")

        runtime.spawn(waits, "helper")
        runtime.work(SLEEP, 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(main)
    assert ended == ["helper"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheduler", "place"),
    [
        (faulty.computes_for_ever, "computes_for_ever"),
        (faulty.handles_everything, "handles_everything"),
        (faulty.never_returns, "never_returns"),
        (faulty.polls_for_ever, "polls_for_ever"),
    ],
    ids=["computes", "handles everything", "never returns", "polls"],
)
def test_a_scheduler_that_loops_for_ever_is_stopped_and_shown(
    scheduler: Callable[[Engine], None], place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("impl.experiment.STALL_FLOOR_S", 0.2)
    with pytest.raises(Stalled, match=r"nothing was recorded for 0\.2") as caught:
        attempt(scheduler)
    assert f", in {place}" in str(caught.value)
    assert "post-processed" in str(caught.value)


@pytest.mark.slow
def test_a_scheduler_that_polls_while_requests_are_to_come_is_told_to_wait() -> None:
    with pytest.raises(ProtocolError, match="asked 100000 times for a batch without waiting") as caught:
        attempt(faulty.polls_for_ever, scenario(from_gaps([0, MS])))
    assert "use next_batch(wait=True) when no forward is in flight" in str(caught.value)


def test_a_run_may_be_followed_by_another_after_a_failure() -> None:
    for _ in range(3):
        with pytest.raises(RunFailed):
            attempt(faulty.raises_in_helper)
    served = scenario(burst(2, Lengths(max_output_tokens=3)), Continuous(4, 100))
    assert [len(tokens) for tokens in attempt(faulty.normal, served).tokens] == [3, 3]


# The GIL.


def spans_of(kind: WorkKind, *durations_ns: int, has_gil: bool = True) -> list[tuple[int, int]]:
    """Return start and end of the work of threads that begin at once."""
    spans: list[tuple[int, int]] = [(0, 0)] * len(durations_ns)

    def main(runtime: VirtualRuntime) -> None:
        def work(index: int, duration_ns: int) -> None:
            start_ns = runtime.now_ns()
            runtime.work(kind, duration_ns)
            spans[index] = start_ns - ORIGIN_NS, runtime.now_ns() - ORIGIN_NS

        for index, duration_ns in enumerate(durations_ns):
            runtime.spawn(lambda i=index, d=duration_ns: work(i, d), f"thread {index}")

    play(main, has_gil=has_gil)
    return spans


def test_two_threads_that_compute_share_the_time_in_slices_of_5_ms() -> None:
    # a: 0-5, 10-15, 20-22; b: 5-10, 15-20, 22-24.
    assert spans_of(SPIN, 12 * MS, 12 * MS) == [(0, 22 * MS), (0, 24 * MS)]


def test_a_computation_shorter_than_a_slice_is_not_interrupted() -> None:
    assert spans_of(SPIN, 4 * MS, 3 * MS) == [(0, 4 * MS), (0, 7 * MS)]


def test_three_threads_take_turns() -> None:
    assert spans_of(SPIN, 6 * MS, 6 * MS, 6 * MS) == [(0, 16 * MS), (0, 17 * MS), (0, 18 * MS)]


@pytest.mark.parametrize("kind", [WorkKind.SLEEP, WorkKind.NATIVE])
def test_other_work_runs_side_by_side(kind: WorkKind) -> None:
    assert spans_of(kind, 12 * MS, 9 * MS) == [(0, 12 * MS), (0, 9 * MS)]


def test_without_a_gil_computations_run_side_by_side() -> None:
    assert spans_of(SPIN, 12 * MS, 9 * MS, has_gil=False) == [(0, 12 * MS), (0, 9 * MS)]


@pytest.mark.parametrize(("wakes_ns", "runs_ns"), [(1 * MS, 6 * MS), (3 * MS, 8 * MS), (7 * MS, 8 * MS)])
def test_a_thread_that_wakes_waits_for_its_turn(wakes_ns: int, runs_ns: int) -> None:
    """It asks for the GIL after 5 ms; a computation of 8 ms may end before that."""
    seen: list[int] = []

    def main(runtime: VirtualRuntime) -> None:
        runtime.spawn(lambda: runtime.work(SPIN, 8 * MS), "computes")
        runtime.work(SLEEP, wakes_ns)
        seen.append(runtime.now_ns() - ORIGIN_NS)

    play(main)
    assert seen == [runs_ns]


def test_a_wake_up_costs_nothing_while_nobody_computes() -> None:
    seen: list[int] = []

    def main(runtime: VirtualRuntime) -> None:
        runtime.work(SPIN, 3 * MS)
        runtime.work(SLEEP, 3 * MS)
        seen.append(runtime.now_ns() - ORIGIN_NS)

    play(main)
    assert seen == [6 * MS]


def test_a_reader_woken_by_a_computing_thread_waits_for_its_turn() -> None:
    seen: list[int] = []

    def main(runtime: VirtualRuntime) -> None:
        queue: Queue[int] = runtime.queue("q")

        def reader() -> None:
            queue.get()
            seen.append(runtime.now_ns() - ORIGIN_NS)

        runtime.spawn(reader, "reader")
        runtime.work(SPIN, 1 * MS)
        queue.put(1)
        runtime.work(SPIN, 20 * MS)

    play(main)
    assert seen == [6 * MS]


@pytest.mark.slow
@pytest.mark.parametrize("profiler", ["", "/opt/nvidia"], ids=["alone", "under ncu"])
def test_a_scheduler_inside_a_blocking_call_is_woken(profiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("impl.experiment.STALL_FLOOR_S", 0.2)
    monkeypatch.setenv("NV_COMPUTE_PROFILER_PERFWORKS_DIR", profiler)  # it holds up launches of a GPU, not virtual ones
    begin_s = time.monotonic()
    with pytest.raises(Stalled, match="nothing was recorded"):
        attempt(lambda engine: time.sleep(30))
    assert time.monotonic() - begin_s < 10


@pytest.mark.parametrize("has_gil", [True, False], ids=["GIL", "no GIL"])
def test_every_release_of_the_gil_costs_a_switch_interval_while_another_thread_computes(has_gil: bool) -> None:
    found: dict[str, int] = {}

    def main(runtime: VirtualRuntime) -> None:
        releases = GilReleases(upload=1, wait_stream=2, before_start=3, before_kernels=4, after=5)
        device = VirtualDevice(runtime, DeviceSettings(), gil_releases=releases)
        prepare, stream = device.stream("prepare"), device.stream("engine")
        batch = build_batch()
        runtime.spawn(lambda: runtime.work(SPIN, 500 * MS), "computing")
        runtime.work(SLEEP, 1 * MS)

        def timed(name: str, call: Callable[[], T]) -> T:
            start_ns = runtime.now_ns()
            result = call()
            found[name] = (runtime.now_ns() - start_ns) // MS
            return result

        timed("upload", lambda: device.upload(batch, prepare))
        timed("wait_stream", lambda: stream.wait_stream(prepare))
        start_ns = runtime.now_ns()
        times = timed("launch", lambda: device.launch(batch, stream, forward_ns=30 * MS, copy_ns=0))
        found["start"] = (times.start_ns - start_ns) // MS
        found["forward"] = (times.end_ns - times.start_ns) // MS

    play(main, has_gil=has_gil)
    if has_gil:
        assert found == {"upload": 5, "wait_stream": 10, "launch": 60, "start": 15, "forward": 20 + 30}
    else:
        assert found == {"upload": 0, "wait_stream": 0, "launch": 0, "start": 0, "forward": 30}
