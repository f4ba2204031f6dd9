"""The engine's books: what a scheduler does wrong is an error that names the request or the batch."""

from __future__ import annotations

import gc
from itertools import pairwise

import pytest

from impl.batching import Continuous
from impl.costs import WorkKind
from impl.device.protocol import DeviceSettings
from impl.engine import Engine
from impl.errors import Deadlock, ProtocolError, RunFailed, SettingError, Stalled
from impl.experiment import Scenario
from impl.machines import CpuMachine, Machine, VirtualMachine
from impl.schedulers import SCHEDULERS
from impl.schedulers.normal import normal
from impl.schedulers.overlap import overlap
from impl.timeline import FORWARD, POST, PRE
from impl.workload import Lengths, burst, from_gaps
from tests import faulty
from tests.build import MS, attempt, scenario, stages


@pytest.fixture(params=[VirtualMachine, CpuMachine], ids=lambda machine: machine.name)
def machine(request: pytest.FixtureRequest) -> Machine:
    return request.param()


@pytest.mark.parametrize(
    ("scheduler", "told"),
    [
        (faulty.drops_second_batch, "1 of 3 requests never ended: request 1 (0 of 1 outputs)"),
        (faulty.never_posts_second_batch, "1 of 3 requests never ended: request 1 (0 of 1 outputs)"),
        (faulty.never_asks, "3 of 3 requests never ended: request 0 (0 of 1 outputs), 1 (0 of 1 outputs)"),
        (faulty.posts_twice, "post of batch 0 a second time"),
        (faulty.posts_before_synchronize, "post of batch 0 before its tokens are there; call engine.synchronize first"),
        (faulty.launches_twice, "batch 0 is launched a second time"),
        (faulty.launches_without_pre, "batch 0 is launched without its inputs; call engine.pre(batch, stream) first"),
        (faulty.forgets_wait_stream, "call engine.wait_stream(scheduler) before the launch"),
        (faulty.reads_times_early, "the forward of batch 0 has no measured times yet"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_misuse_names_the_request_or_the_batch(scheduler: object, told: str, machine: Machine) -> None:
    with pytest.raises(ProtocolError) as caught:
        attempt(scheduler, machine=machine)  # type: ignore[arg-type]
    assert told in str(caught.value)


def test_a_batch_lost_in_the_middle_is_named_by_the_deadlock_it_causes() -> None:
    served = scenario(burst(1, Lengths(max_output_tokens=5)), Continuous(4, 100))
    with pytest.raises(Deadlock) as caught:
        attempt(faulty.drops_all_but_first_batch, served)
    assert "thread 'scheduler' waits for queue 'results and arrivals'" in str(caught.value)
    told = "2 of 3 batches were taken and not post-processed: batch 1 (request 0), batch 2 (request 0)"
    assert told in str(caught.value)


def test_polling_while_time_stands_still_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("impl.engine.MAX_EMPTY_POLLS", 1000)
    served = scenario(from_gaps([0, 60_000 * MS]))
    with pytest.raises(ProtocolError, match="asked 1000 times for a batch without waiting, and no time passed"):
        attempt(faulty.polls_for_ever, served)


@pytest.mark.slow
def test_polling_for_ever_in_real_time_is_a_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("impl.experiment.STALL_FLOOR_S", 0.3)
    monkeypatch.setattr("impl.experiment.STALL_FACTOR", 0)
    served = scenario(from_gaps([0, 60_000 * MS]))
    with pytest.raises(Stalled, match="nothing was recorded"):
        attempt(faulty.polls_for_ever, served, CpuMachine())


def test_polls_with_something_between_them_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("impl.engine.MAX_EMPTY_POLLS", 1)
    result = attempt(overlap, scenario(burst(1, Lengths(max_output_tokens=50)), Continuous(4, 100)))
    assert len(result.tokens[0]) == 50


def test_waiting_for_a_forward_again_changes_nothing(machine: Machine) -> None:
    def scheduler(engine: Engine) -> None:
        stream = engine.stream("engine")
        while (batch := engine.next_batch()) is not None:
            engine.pre(batch, stream)
            flight = engine.launch(batch, stream)
            engine.synchronize(flight)
            engine.synchronize(flight)
            engine.post(flight)

    assert attempt(scheduler, machine=machine).metrics.summary.num_forwards == 3


def test_next_batch_waits_for_the_next_arrival() -> None:
    result = attempt(normal, scenario(from_gaps([3 * MS, 20 * MS])))
    assert [taken.time_ns - result.timeline.started_ns for taken in result.timeline.taken] == [3 * MS, 23 * MS]


def test_arrivals_count_from_the_first_call_of_next_batch() -> None:
    def late(engine: Engine) -> None:
        engine.queue("timer").get(7 * MS)
        normal(engine)

    assert attempt(late).metrics == attempt(normal).metrics


def test_the_order_of_overlap_differs_from_normals_by_one_step() -> None:
    def order(name: str) -> list[tuple[str, int]]:
        spans = [s for s in attempt(SCHEDULERS[name]).timeline.spans if s.stage in (PRE, POST)]
        return [(span.stage, span.batch_id) for span in spans]

    assert order("normal") == [(PRE, 0), (POST, 0), (PRE, 1), (POST, 1), (PRE, 2), (POST, 2)]
    assert order("overlap") == [(PRE, 0), (PRE, 1), (POST, 0), (PRE, 2), (POST, 1), (POST, 2)]


def test_spans_carry_the_thread_or_stream_they_ran_on() -> None:
    spans = attempt(SCHEDULERS["overlap_three_thread"]).timeline.spans
    lanes = {(span.stage, span.lane) for span in spans}
    assert lanes == {
        ("pre", "scheduler"),
        ("launch", "launch"),
        ("forward", "engine"),
        ("copy", "copy"),
        ("synchronize", "post"),
        ("post", "post"),
    }


def test_wrong_tokens_are_named_by_request() -> None:
    def corrupts(engine: Engine) -> None:
        stream = engine.stream("engine")
        while (batch := engine.next_batch()) is not None:
            engine.pre(batch, stream)
            flight = engine.launch(batch, stream)
            engine.synchronize(flight)
            flight.tokens[0] ^= 2 if batch.id == 1 else 0
            engine.post(flight)

    with pytest.raises(RunFailed, match="scenario 'small': request 1 got tokens"):
        attempt(corrupts)


def test_real_runs_with_late_arrivals_are_repeated_and_then_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0

    def late(engine: Engine) -> None:
        nonlocal attempts
        attempts += 1
        normal(engine)
        engine.timeline.late_ns = 2 * MS if attempts < 3 else 0

    attempt(late, machine=CpuMachine())
    assert attempts == 3
    monkeypatch.setattr("impl.experiment.MAX_ATTEMPTS", 2)
    attempts = 0
    with pytest.raises(RunFailed, match=r"in 2 attempts an arrival .* up to 2\.00 ms late; allowed: 1\.00 ms"):
        attempt(late, machine=CpuMachine())


def test_in_virtual_time_an_arrival_that_waits_for_the_gil_is_part_of_the_result() -> None:
    served = scenario(from_gaps([0, 1 * MS]), costs=stages(0, 0, 12, host_work=WorkKind.SPIN))
    result = attempt(SCHEDULERS["overlap_three_thread"], served)
    assert result.timeline.late_ns == 5 * MS
    assert result.timeline.taken[1].time_ns - result.timeline.started_ns == 6 * MS


def test_a_scenario_is_scaled_as_a_whole() -> None:
    half = Scenario("s", from_gaps([0, 8]), Continuous(1, 1), stages(2, 4, 6), DeviceSettings()).scaled(0.5)
    assert half.workload.requests[1].arrival_ns == 4
    assert half.costs == stages(1, 2, 3)
    with pytest.raises(SettingError, match="scale is 0; allowed"):
        half.scaled(0)


def test_forwards_are_recorded_in_order(machine: Machine) -> None:
    forwards = attempt(overlap, machine=machine).timeline.stage(FORWARD)
    assert [span.batch_id for span in forwards] == [0, 1, 2]
    assert all(before.end_ns <= after.start_ns for before, after in pairwise(forwards))


def test_a_batch_is_prepared_once() -> None:
    def prepares_twice(engine: Engine) -> None:
        stream = engine.stream("engine")
        batch = engine.next_batch()
        assert batch is not None
        engine.pre(batch, stream)
        engine.pre(batch, stream)

    with pytest.raises(ProtocolError, match="batch 0 is prepared a second time"):
        attempt(prepares_twice)


@pytest.mark.parametrize("name", ["scheduler", "post"])
def test_a_thread_has_a_name_of_its_own(name: str, machine: Machine) -> None:
    def spawns_twice(engine: Engine) -> None:
        engine.spawn(lambda: None, "post")
        engine.spawn(lambda: None, name)

    told = f"a second thread is called '{name}'; give each thread of a run a name of its own"
    with pytest.raises(ProtocolError, match=told):
        attempt(spawns_twice, machine=machine)


@pytest.mark.parametrize("name", ["copy", "engine"])
def test_a_stream_has_a_name_of_its_own(name: str, machine: Machine) -> None:
    def streams_twice(engine: Engine) -> None:
        engine.stream("engine")
        engine.stream(name)

    told = f"a second stream is called '{name}'; give each stream of a run a name of its own"
    with pytest.raises(ProtocolError, match=told):
        attempt(streams_twice, machine=machine)


def test_a_thread_and_a_stream_may_have_one_name() -> None:
    def scheduler(engine: Engine) -> None:
        engine.spawn(lambda: None, "engine")
        normal(engine)

    assert attempt(scheduler).metrics.summary.num_forwards == 3


def test_two_threads_cannot_synchronize_one_flight() -> None:
    def races(engine: Engine) -> None:
        stream = engine.stream("engine")
        batch = engine.next_batch()
        assert batch is not None
        engine.pre(batch, stream)
        flight = engine.launch(batch, stream)
        engine.spawn(lambda: engine.synchronize(flight), "second")
        engine.synchronize(flight)
        engine.post(flight)

    with pytest.raises(ProtocolError, match="threads 'scheduler' and 'second' both synchronize batch 0"):
        attempt(races)


def test_runs_leave_nothing_that_piles_up(machine: Machine) -> None:
    """The collector is paused during a run: what a real run leaves in cycles is found afterwards, and a virtual one
    leaves next to nothing.
    """
    served = scenario(burst(100), costs=stages(0.01, 0.01, 0.01))
    attempt(normal, served, machine)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(5):
        attempt(normal, served, machine)
    assert len(gc.get_objects()) - before < 1000, "a run makes thousands"
