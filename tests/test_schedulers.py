"""What every scheduler keeps on the virtual device, whatever is served; and how a user's one is loaded."""

from __future__ import annotations

import math
import sys
from collections import Counter
from dataclasses import asdict
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import pytest
from hypothesis import given, settings

from impl.costs import Cost, Costs
from impl.errors import SettingError
from impl.experiment import Result, Scenario, run
from impl.ledger import Outcome
from impl.machines import CpuMachine, VirtualMachine
from impl.schedulers import SCHEDULERS, load
from impl.timeline import COPY, FORWARD, LAUNCH, POST, PRE, SYNCHRONIZE, Taken
from impl.tokens import expected_tokens
from tests.strategies import machines, scenarios, scenarios_in_real_time


def cost_of(cost: Cost, taken: Taken) -> int:
    """Return what a stage of a taken batch costs."""
    return cost.fixed_ns + cost.per_request_ns * len(taken.request_ids) + cost.per_token_ns * taken.num_tokens


def least_ttft_ns(costs: Costs, taken: Taken) -> int:
    """Return the time that a batch's own stages take."""
    return sum(cost_of(cost, taken) for cost in (costs.pre, costs.launch, costs.forward, costs.copy, costs.post))


def require_sound(result: Result) -> None:
    """Assert what holds for every complete run."""
    scenario, timeline, metrics = result.scenario, result.timeline, result.metrics
    requests = scenario.workload.requests

    assert result.tokens == [expected_tokens(request) for request in requests]
    ends = Counter(d.request_id for d in timeline.deliveries if d.outcome is Outcome.ENDED)
    assert ends == {request.id: 1 for request in requests}
    for name, value in asdict(metrics.summary).items():
        assert value is None or math.isfinite(value), f"{name} is {value}"

    by_batch = {taken.batch_id: taken for taken in timeline.taken}
    first = {d.request_id: by_batch[d.batch_id] for d in timeline.deliveries if d.position == 0}
    for request, found in zip(requests, metrics.requests, strict=True):
        assert len(found.inter_token_ns) + 1 == request.num_output_tokens
        assert found.ttft_ns >= least_ttft_ns(scenario.costs, first[request.id])
        assert found.ttft_ns == found.queue_wait_ns + found.service_ttft_ns
        assert found.queue_wait_ns >= 0

    for batch_id in by_batch:
        own = {span.stage: span for span in timeline.spans if span.batch_id == batch_id}
        assert own[PRE].end_ns <= own[LAUNCH].start_ns <= own[FORWARD].start_ns
        assert own[FORWARD].end_ns <= own[COPY].start_ns <= own[COPY].end_ns <= own[SYNCHRONIZE].end_ns
        assert own[SYNCHRONIZE].end_ns <= own[POST].start_ns
    assert set(Counter((span.stage, span.batch_id) for span in timeline.spans).values()) == {1}
    forwards = timeline.stage(FORWARD)
    assert all(a.end_ns <= b.start_ns for a, b in pairwise(forwards)), "one compute engine"
    copies = sorted(timeline.stage(COPY), key=attrgetter("end_ns"))
    assert all(a.end_ns <= b.start_ns for a, b in pairwise(copies)), "one copy engine"
    assert 0 <= metrics.summary.gpu_idle_share <= 1


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULERS)
@given(scenario=scenarios(), machine=machines)
def test_every_request_ends_once_and_equal_runs_are_equal(
    name: str, scenario: Scenario, machine: VirtualMachine
) -> None:
    result, again = (run(SCHEDULERS[name], scenario, machine) for _ in range(2))
    require_sound(result)
    assert result.tokens == run(SCHEDULERS["normal"], scenario, machine).tokens
    assert repr(asdict(result)) == repr(asdict(again))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEDULERS)
@settings(max_examples=25)
@given(scenario=scenarios_in_real_time())
def test_real_threads_deliver_the_same_tokens(name: str, scenario: Scenario) -> None:
    result = run(SCHEDULERS[name], scenario, CpuMachine())
    assert result.tokens == run(SCHEDULERS["normal"], scenario, VirtualMachine()).tokens
    batches = [taken.batch_id for taken in result.timeline.taken]
    for stage in (PRE, LAUNCH, FORWARD, COPY, SYNCHRONIZE, POST):
        assert [span.batch_id for span in result.timeline.stage(stage)] == batches


def test_load_returns_a_users_scheduler_under_its_name() -> None:
    name, scheduler = load("perf.told:overlap_just_in_time_oracle")
    assert name == "overlap_just_in_time_oracle"
    assert callable(scheduler)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("", "allowed: package.module:name"),
        ("perf.told", "allowed: package.module:name"),
        (":overlap", "allowed: package.module:name"),
        ("perf.told:", "allowed: package.module:name"),
        ("no_such_package.loops:mine", "module 'no_such_package.loops' does not import"),
        ("perf.no_such_module:mine", "module 'perf.no_such_module' does not import"),
        (".loops:mine", "module '.loops' does not import"),
        ("perf.told:no_such_name", "has no callable 'no_such_name'; it has: "),
        ("impl.workload:NS_PER_S", "has no callable 'NS_PER_S'"),
        ("impl.schedulers.overlap:overlap", "the name 'overlap' is taken"),
    ],
)
def test_load_says_what_is_wrong_with_a_path(path: str, told: str) -> None:
    with pytest.raises(SettingError) as caught:
        load(path)
    assert told in str(caught.value)
    assert repr(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def broken(:", "SyntaxError"),
        ("raise ValueError('no license')", "ValueError: no license"),
        ("import no_such_dependency", "no_such_dependency"),
    ],
)
def test_load_says_why_a_module_does_not_import(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "users_loops.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "users_loops", raising=False)
    with pytest.raises(SettingError, match="'users_loops' does not import") as caught:
        load("users_loops:broken")
    assert told in str(caught.value)
