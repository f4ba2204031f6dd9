"""Real threads on the CPU device: however a run ends, its threads end, and the error names the one that failed."""

from __future__ import annotations

import _thread
import gc
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from impl.core import Batch
from impl.costs import WorkKind
from impl.device.cpu import CpuDevice
from impl.device.protocol import DeviceSettings, LaunchBlocks
from impl.device.stream import Stream
from impl.engine import Engine
from impl.errors import ProtocolError, RunFailed, Stalled
from impl.experiment import run
from impl.machines import CpuMachine
from impl.runtime.protocol import Queue
from impl.runtime.threads import ThreadQueue, ThreadRuntime
from impl.runtime.work import COARSE_SLEEP_RESERVE_NS, do_work
from impl.schedulers import SCHEDULERS
from impl.schedulers.normal import normal
from impl.workload import burst
from reports.machine import has_gil
from tests import faulty
from tests.build import MS, attempt, scenario, stages

NUM_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@pytest.fixture(autouse=True)
def no_threads_left_behind(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test after which threads of its run are still there."""
    monkeypatch.setattr("impl.runtime.threads.JOIN_S", 0.5)
    before = set(threading.enumerate())
    yield
    deadline_s = time.monotonic() + 5
    while (left := set(threading.enumerate()) - before) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not left, f"left behind: {left}"


@pytest.fixture
def quick_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("impl.experiment.STALL_FLOOR_S", 0.3)


def play(main: Callable[[ThreadRuntime], None], *, stall_s: float = 30) -> None:
    """Run `main` as the thread "scheduler"."""
    runtime = ThreadRuntime()
    runtime.run(lambda: main(runtime), progress=lambda: 0, stall_s=stall_s)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler_serves_every_request_and_ends_its_threads(name: str) -> None:
    result = attempt(SCHEDULERS[name], scenario(costs=stages(1, 3, 1)), CpuMachine())
    assert result.tokens == attempt(normal).tokens


@pytest.mark.parametrize(
    ("scheduler", "told"),
    [
        (faulty.raises, "thread 'scheduler' failed: ValueError: no kernel for bf16"),
        (faulty.raises_in_helper, "thread 'helper' failed: ValueError: no kernel for bf16"),
        (faulty.exits, "thread 'scheduler' failed: SystemExit: 3"),
    ],
    ids=["scheduler", "helper", "exit"],
)
def test_an_exception_ends_the_run_and_names_the_thread(scheduler: Callable[[Engine], None], told: str) -> None:
    begin_s = time.monotonic()
    with pytest.raises(RunFailed) as caught:
        attempt(scheduler, machine=CpuMachine())
    assert str(caught.value) == told
    assert caught.value.__cause__ is not None
    assert time.monotonic() - begin_s < 5


@pytest.mark.slow
def test_an_exception_also_ends_a_thread_that_only_computes() -> None:
    with pytest.raises(RunFailed, match="thread 'helper' failed: ValueError: no kernel for bf16"):
        attempt(faulty.raises_in_helper_while_computing, machine=CpuMachine())


def fail_upload(self: CpuDevice, batch: Batch, stream: Stream) -> None:
    batch.upload = (stream, stream.issue())
    stream.enqueue(lambda: batch.inputs.extend([1]))  # type: ignore[attr-defined] # inputs are None: fails in the worker


@pytest.mark.parametrize("name", ["normal", "overlap", "overlap_three_thread"])
def test_an_exception_in_a_streams_worker_names_the_stream(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuDevice, "upload", fail_upload)
    with pytest.raises(RunFailed, match=r"thread 'stream (engine|scheduler)' failed: AttributeError"):
        attempt(SCHEDULERS[name], machine=CpuMachine())


@pytest.mark.parametrize(
    "settings",
    [
        DeviceSettings(launch_blocks=LaunchBlocks.OWN_FORWARD),
        DeviceSettings(launch_blocks=LaunchBlocks.PREVIOUS_FORWARD),
        DeviceSettings(kernels_per_forward=3000),
    ],
    ids=["own forward", "previous forward", "full queue"],
)
def test_a_failure_reaches_a_thread_that_a_launch_blocks(
    settings: DeviceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuDevice, "upload", fail_upload)
    with pytest.raises(RunFailed, match="thread 'stream scheduler' failed"):
        attempt(SCHEDULERS["overlap"], scenario(settings=settings), CpuMachine())


def test_a_protocol_error_is_raised_as_it_is() -> None:
    with pytest.raises(ProtocolError, match="post of batch 0 a second time"):
        attempt(faulty.posts_twice, machine=CpuMachine())


@pytest.mark.slow
def test_a_deadlock_is_told_with_queues_and_stacks(quick_stall: None) -> None:
    with pytest.raises(Stalled) as caught:
        attempt(faulty.waits_in_a_circle, machine=CpuMachine())
    told = str(caught.value)
    assert told.startswith("nothing was recorded for 0.3")
    assert "queue 'first' is waited for; queue 'second' is waited for" in told
    for thread, line in (("scheduler", "first.get()"), ("helper", "item = second.get()")):
        assert f"thread '{thread}':" in told
        assert line in told
    assert "1 of 1 batches were taken and not post-processed: batch 0 (request 0)" in told


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheduler",
    [faulty.computes_for_ever, faulty.handles_everything, faulty.never_returns],
    ids=lambda scheduler: scheduler.__name__,
)
def test_an_endless_loop_is_told_with_stacks_and_ended(scheduler: Callable[[Engine], None], quick_stall: None) -> None:
    with pytest.raises(Stalled) as caught:
        attempt(scheduler, machine=CpuMachine())
    assert "thread 'scheduler':" in str(caught.value)
    assert f", in {scheduler.__name__}" in str(caught.value)


@pytest.mark.slow
def test_a_stall_is_judged_against_the_longest_stage(quick_stall: None) -> None:
    """A forward of 400 ms is no stall where 300 ms without progress would be one for short stages."""
    attempt(normal, scenario(burst(1), costs=stages(1, 400, 1)), CpuMachine())


def interrupt_caller() -> None:
    time.sleep(0.05)  # by then it waits for this thread
    _thread.interrupt_main()


@pytest.mark.slow
@pytest.mark.parametrize("main", ["waits", "computes"])
def test_ctrl_c_in_the_caller_ends_the_threads(main: str) -> None:
    def waits(runtime: ThreadRuntime) -> None:
        queue: Queue[int] = runtime.queue("never filled")
        runtime.spawn(queue.get, "helper")  # type: ignore[arg-type] # what it returns is of no interest
        interrupt_caller()
        queue.get()

    def computes(runtime: ThreadRuntime) -> None:
        interrupt_caller()
        while True:
            pass

    with pytest.raises(KeyboardInterrupt):
        play({"waits": waits, "computes": computes}[main])


def test_a_queue_made_after_a_failure_waits_for_nothing() -> None:
    def main(runtime: ThreadRuntime) -> None:
        def fails() -> None:
            raise ValueError("too late")

        runtime.spawn(fails, "helper")
        runtime.has_failed.wait(10)
        queue: Queue[int] = runtime.queue("new")
        queue.get()

    with pytest.raises(RunFailed, match="thread 'helper' failed: ValueError: too late"):
        play(main)


def test_queues_keep_order_time_out_and_close() -> None:
    seen: list[object] = []

    def main(runtime: ThreadRuntime) -> None:
        queue: Queue[int] = runtime.queue("q")
        seen.append(queue.get(0))
        begin_ns = runtime.now_ns()
        seen.append(queue.get(20 * MS))
        seen.append(runtime.now_ns() - begin_ns >= 20 * MS)
        for number in (1, 2, 3):
            queue.put(number)
        seen.append(queue.get(0))
        queue.close()
        with pytest.raises(ProtocolError, match="put into queue 'q' after it was closed"):
            queue.put(4)
        seen.append(list(queue))
        seen.append(queue.get())

    play(main)
    assert seen == [None, None, True, 1, [2, 3], None]


def test_a_timed_wait_is_coarse_first_and_then_polls_up_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a made-up clock: the coarse wait ends 40 µs late, a poll takes 3 µs and giving up the core 7 µs."""
    now_ns, sleeps, coarse = [0], [], []

    class Items(queue.SimpleQueue[int]):
        def get(self, block: bool = True, timeout: float | None = None) -> int:
            assert timeout is not None
            coarse.append(timeout)
            now_ns[0] += round(timeout * 1e9) + 40_000
            raise queue.Empty

        def get_nowait(self) -> int:
            now_ns[0] += 3_000
            raise queue.Empty

    def sleep(duration_s: float) -> None:
        sleeps.append(duration_s)
        now_ns[0] += 7_000

    waited: ThreadQueue[int] = ThreadQueue("q")
    waited._items = Items()  # type: ignore[assignment]
    monkeypatch.setattr("impl.runtime.threads.time", SimpleNamespace(perf_counter_ns=lambda: now_ns[0], sleep=sleep))
    assert waited.get(2 * MS) is None
    assert coarse == [pytest.approx(2e-3 - COARSE_SLEEP_RESERVE_NS * 1e-9)]
    assert set(sleeps) == {0}
    assert 2 * MS <= now_ns[0] <= 2 * MS + 20_000
    coarse.clear()
    assert waited.get(100_000) is None
    assert coarse == [], "shorter than the reserve"


def test_closing_ends_every_reader() -> None:
    ended: list[int] = []

    def main(runtime: ThreadRuntime) -> None:
        queue: Queue[int] = runtime.queue("q")

        def reader() -> None:
            ended.append(len(list(queue)))

        for index in range(3):
            runtime.spawn(reader, f"reader {index}")
        queue.close()

    play(main)
    assert ended == [0, 0, 0]


@pytest.mark.parametrize("kind", WorkKind)
def test_work_takes_its_time(kind: WorkKind) -> None:
    do_work(kind, 0, lambda: None)
    begin_ns = time.perf_counter_ns()
    do_work(kind, 30 * MS, lambda: None)
    assert time.perf_counter_ns() - begin_ns >= 30 * MS * 0.99


def wall_ns(kind: WorkKind, duration_ns: int) -> int:
    """Return how long two threads take that each work for `duration_ns`."""

    def main(runtime: ThreadRuntime) -> None:
        for name in ("a", "b"):
            runtime.spawn(lambda: runtime.work(kind, duration_ns), name)

    begin_ns = time.perf_counter_ns()
    play(main)
    return time.perf_counter_ns() - begin_ns


BURN = """
import sys, time
sys.stdin.readline()
begin, cpu = time.perf_counter_ns(), time.process_time_ns()
while time.process_time_ns() < cpu + int(sys.argv[1]): pass
print(begin, time.perf_counter_ns())
"""


def wall_of_two_processes_ns(duration_ns: int) -> int:
    """Return how long two processes take that each compute for `duration_ns`: what the machine can give."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    pair = [subprocess.Popen([sys.executable, "-c", BURN, str(duration_ns)], **pipes) for _ in range(2)]
    time.sleep(0.1)  # until both wait for their start
    for process in pair:
        process.stdin.write("go\n")
        process.stdin.flush()
    spans = [tuple(map(int, process.communicate(timeout=60)[0].split())) for process in pair]
    return max(end for _, end in spans) - min(begin for begin, _ in spans)


@pytest.mark.slow
@pytest.mark.skipif(not has_gil(), reason="this Python runs without a GIL")
def test_two_threads_that_compute_in_python_take_the_sum_of_their_times() -> None:
    assert wall_ns(WorkKind.SPIN, 150 * MS) >= 0.95 * 300 * MS


@pytest.mark.slow
@pytest.mark.skipif(NUM_CORES < 2, reason="two threads run side by side only on two cores or more")
def test_two_threads_that_compute_in_a_library_take_the_longer_of_their_times() -> None:
    """Other processes want the cores as well: the best of several tries counts, if two processes can do as well."""
    bound_ns = 1.8 * 150 * MS  # one after the other would be 2
    could = []
    for _ in range(6):
        if wall_ns(WorkKind.NATIVE, 150 * MS) < bound_ns:
            return
        could.append(wall_of_two_processes_ns(150 * MS) < bound_ns)
    if not any(could):
        pytest.skip("other load leaves two processes no more than one core between them")
    pytest.fail("two threads in a library ran one after the other, where two processes ran side by side")


def wake_ups_during(kind: WorkKind) -> int:
    """Return how often a thread wakes from short sleeps while another one works for 100 ms."""
    num_wake_ups = 0

    def main(runtime: ThreadRuntime) -> None:
        nonlocal num_wake_ups
        done = threading.Event()

        def work() -> None:
            runtime.work(kind, 100 * MS)
            done.set()

        runtime.spawn(work, "worker")
        while not done.is_set():
            time.sleep(0.0005)
            num_wake_ups += 1

    play(main)
    return num_wake_ups


@pytest.mark.slow
@pytest.mark.skipif(not has_gil(), reason="this Python runs without a GIL")
def test_work_in_a_library_lets_other_threads_run_meanwhile_and_python_code_does_not() -> None:
    """A thread that wakes waits 5 ms for the GIL of a computing one; one core is enough to see it."""
    assert wake_ups_during(WorkKind.NATIVE) > 2 * wake_ups_during(WorkKind.SPIN)


def test_sleeping_threads_take_the_longer_of_their_times() -> None:
    assert 50 * MS <= min(wall_ns(WorkKind.SLEEP, 50 * MS) for _ in range(3)) < 95 * MS


def test_a_run_leaves_garbage_collection_as_it_was() -> None:

    assert gc.isenabled()
    run(normal, scenario(), CpuMachine())
    assert gc.isenabled()
    gc.disable()
    try:
        run(normal, scenario(), CpuMachine())
        assert not gc.isenabled()
    finally:
        gc.enable()
