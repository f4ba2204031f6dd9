"""The CUDA device's code, on a torch.cuda made up here; what a GPU does is for `pytest perf -m gpu`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from impl.batching import Continuous, Dynamic
from impl.core import Flight
from impl.costs import Costs, cost_ms
from impl.device.protocol import ArticleMatmuls, DeviceSettings, GilReleases, LaunchBlocks, Matmuls
from impl.engine import Engine
from impl.errors import ProtocolError
from impl.machines import CudaMachine
from impl.schedulers import SCHEDULERS
from impl.timeline import FORWARD
from impl.workload import Lengths, burst
from tests.build import attempt, scenario
from tests.fake_cuda import fake_machine

SHORT = Costs(pre=cost_ms(0.2), forward=cost_ms(1), copy=cost_ms(0.01), post=cost_ms(0.2))
SETTINGS = {
    "plain": DeviceSettings(),
    "blocks on the previous": DeviceSettings(launch_blocks=LaunchBlocks.PREVIOUS_FORWARD),
    "blocks on its own": DeviceSettings(launch_blocks=LaunchBlocks.OWN_FORWARD),
    "many kernels": DeviceSettings(kernels_per_forward=20),
    "no copy stream": DeviceSettings(has_copy_stream=False),
    "literal": DeviceSettings(matmuls=ArticleMatmuls(prefill=Matmuls(2, 8), decode=Matmuls(3, 4))),
}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> CudaMachine:
    return fake_machine(monkeypatch)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_every_scheduler_gets_its_tokens_and_times(name: str, machine: CudaMachine) -> None:
    served = scenario(burst(6, Lengths(max_output_tokens=3)), Continuous(4, 100), SHORT)
    result = attempt(SCHEDULERS[name], served, machine)  # which checks the tokens
    forwards = result.timeline.stage(FORWARD)
    assert len(forwards) == result.metrics.summary.num_forwards > 3
    for before, after in pairwise(forwards):
        assert before.start_ns < before.end_ns <= after.start_ns, "events are recorded once in a run"


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_every_setting_runs(settings: DeviceSettings, machine: CudaMachine) -> None:
    result = attempt(SCHEDULERS["overlap"], scenario(burst(4), Dynamic(2), SHORT, settings), machine)
    assert result.metrics.summary.num_forwards == 2


def test_slots_and_events_are_all_given_back_and_serve_the_next_run(machine: CudaMachine) -> None:
    resources = machine.resources
    for _ in range(3):
        attempt(SCHEDULERS["overlap_three_thread"], scenario(burst(5), costs=SHORT), machine)
        assert len(resources._free_slots) == resources._num_slots == 5
        assert len(resources._free_events) == 5


def test_a_failed_run_gives_everything_back_too(machine: CudaMachine) -> None:
    def fails(engine: Engine) -> None:
        stream = engine.stream("engine")
        batch = engine.next_batch()
        assert batch is not None
        engine.pre(batch, stream)
        engine.launch(batch, stream)
        raise ValueError("mine")

    with pytest.raises(Exception, match="mine"):
        attempt(fails, scenario(costs=SHORT), machine)
    resources = machine.resources
    assert len(resources._free_slots) == resources._num_slots == 3
    assert len(resources._free_events) == 3


def test_times_are_not_read_once_another_run_may_have_the_events(machine: CudaMachine) -> None:
    kept: list[Flight] = []

    def keeps(engine: Engine) -> None:
        stream = engine.stream("engine")
        while (batch := engine.next_batch()) is not None:
            engine.pre(batch, stream)
            kept.append(engine.launch(batch, stream))
            engine.synchronize(kept[-1])
            engine.post(kept[-1])

    attempt(keeps, scenario(costs=SHORT), machine)
    with pytest.raises(ProtocolError, match="read after its run has ended"):
        kept[0].times()


def test_a_launch_enqueues_tokens_then_the_forward_between_its_events_then_the_copy(
    machine: CudaMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUPTI's reader leaves the first kernel out, the model of the GIL counts all calls."""
    log: list[str] = []

    def logged(name: str, call: Callable[..., object]) -> Callable[..., object]:
        return lambda *arguments: (log.append(name), call(*arguments))

    resources = machine.resources
    resources.reserve(1)
    slot, events = resources.take_slot(), resources.take_events()
    for name in ("upload", "compute", "download"):
        graph = getattr(slot, name)
        monkeypatch.setattr(graph, "replay", logged(name, graph.replay))
    for name in ("start", "end", "copied"):
        event = getattr(events, name)
        monkeypatch.setattr(event, "record", logged(name, event.record))
    resources.give_back(slot)
    resources.give_back_events([events])
    unit = SimpleNamespace(replay=logged("unit", lambda copies: None))
    monkeypatch.setattr(resources.forwards, "plan", lambda forward_ns: [(unit, 1)] * 3)
    attempt(SCHEDULERS["normal"], scenario(burst(1), costs=SHORT), machine)
    assert log == ["upload", "compute", "start", "unit", "unit", "unit", "end", "download", "copied"]
    start, kernels = log.index("start"), log.index("unit")
    found = GilReleases(1, 2, start - 1, kernels - start, len(log) - kernels)
    assert machine.gil_releases == found, "the first is the upload; a wait is in the next test"


def test_a_wait_for_a_stream_records_an_event_and_waits_for_it(
    machine: CudaMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, device = machine.open(DeviceSettings(), num_forwards=1)
    before, after = device.stream("before"), device.stream("after")
    log: list[str] = []
    monkeypatch.setattr(before._so_far, "record", lambda stream: log.append("record"))  # type: ignore[attr-defined]
    monkeypatch.setattr(after.stream, "wait_event", lambda event: log.append("wait"))  # type: ignore[attr-defined]
    after.wait_stream(before)
    assert log == ["record", "wait"]
    assert len(log) == machine.gil_releases.wait_stream
