"""Real threads on the CPU device: however a run ends, its threads end, and the error names the one that failed."""

from __future__ import annotations

import _thread
import gc
import queue
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from impl.core import Batch
from impl.device.cpu import CpuDevice
from impl.device.protocol import DeviceSettings, LaunchBlocks
from impl.device.stream import Stream
from impl.engine import Engine
from impl.errors import ProtocolError, RunFailed, Stalled
from impl.experiment import TOOL_VARIABLES, run
from impl.machines import CpuMachine
from impl.runtime.protocol import Queue
from impl.runtime.threads import ThreadQueue, ThreadRuntime
from impl.runtime.work import COARSE_SLEEP_RESERVE_NS
from impl.schedulers import SCHEDULERS
from impl.schedulers.normal import normal
from impl.workload import burst
from tests import faulty
from tests.build import MS, attempt, play, scenario, stages

pytestmark = pytest.mark.usefixtures("no_threads_left_behind")


@pytest.fixture
def quick_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("impl.experiment.STALL_FLOOR_S", 0.3)


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


def held_up(engine: Engine) -> None:
    """Serve like `normal`, but 0.8 s late: so long may a profiler keep the host, whatever stages usually take."""
    time.sleep(0.8)
    normal(engine)


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOL_VARIABLES)
def test_a_host_held_up_by_ncu_or_compute_sanitizer_is_no_stall(
    tool: str, quick_stall: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in TOOL_VARIABLES:
        monkeypatch.delenv(each, raising=False)
    with pytest.raises(Stalled):
        attempt(held_up, machine=CpuMachine())
    monkeypatch.setenv(tool, "")
    with pytest.raises(Stalled):
        attempt(held_up, machine=CpuMachine())
    monkeypatch.setenv(tool, "/opt/nvidia")
    attempt(held_up, machine=CpuMachine())


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
