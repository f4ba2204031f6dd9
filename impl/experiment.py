"""One experiment: a scheduler, a scenario and a machine in; tokens, timeline and metrics out."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from impl.batching import Batching
from impl.costs import Costs
from impl.device.protocol import DeviceSettings
from impl.engine import Engine, Scheduler
from impl.errors import Deadlock, RunFailed, Stalled
from impl.machines import Machine
from impl.metrics import Metrics, measure
from impl.timeline import Timeline
from impl.tokens import expected_tokens
from impl.workload import Workload

LATE_SHARE = 0.01
LATE_FLOOR_NS = 1_000_000
"""An arrival may be late by 1 % of the mean gap or 1 ms, whichever is larger."""
MAX_ATTEMPTS = 3
STALL_FLOOR_S = 5.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is served and what it costs; the same for every scheduler and machine."""

    id: str
    workload: Workload
    batching: Batching
    costs: Costs
    settings: DeviceSettings = field(default_factory=DeviceSettings)

    def __post_init__(self) -> None:
        self.batching.check(self.workload)

    def scaled(self, factor: float) -> Scenario:
        """Return this scenario with all times, arrivals included, multiplied by `factor`."""
        return replace(self, workload=self.workload.scaled(factor), costs=self.costs.scaled(factor))


@dataclass(frozen=True, slots=True)
class Result:
    """A complete and valid run."""

    scenario: Scenario
    timeline: Timeline
    tokens: list[list[int]]
    """Delivered tokens of each request."""
    metrics: Metrics


def run(scheduler: Scheduler, scenario: Scenario, machine: Machine) -> Result:
    """Run a scheduler once; a run whose arrivals went out late is invalid and is repeated.

    Raises:
        RunFailed: if a thread raised, the run stalled, a request was lost or repeated, its tokens are
            not the expected ones, or every attempt was invalid.
    """
    limit_ns = max(LATE_FLOOR_NS, round(LATE_SHARE * scenario.workload.mean_gap_ns))
    late_ns = 0
    for _ in range(MAX_ATTEMPTS):
        with paused_garbage_collection():
            result = _attempt(scheduler, scenario, machine)
        late_ns = result.timeline.late_ns
        # In virtual time only the modelled GIL makes an arrival late: part of the result, and the same every time.
        if machine.is_exact or late_ns <= limit_ns:
            return result
    raise RunFailed(
        f"scenario {scenario.id!r}: in {MAX_ATTEMPTS} attempts an arrival reached the waiting scheduler up to "
        f"{late_ns / 1e6:.2f} ms late; allowed: {limit_ns / 1e6:.2f} ms. "
        "The machine is too busy to measure on, or the scheduler's own threads hold the GIL"
    )


def _attempt(scheduler: Scheduler, scenario: Scenario, machine: Machine) -> Result:
    runtime, device, ranges = machine.open(scenario.settings, max_in_flight=len(scenario.workload.requests))
    engine = Engine(runtime, device, scenario.workload, scenario.costs, scenario.batching, ranges)

    try:
        runtime.run(
            lambda: scheduler(engine),
            progress=engine.progress,
            stall_s=STALL_FLOOR_S + 3e-9 * scenario.costs.longest_fixed_ns,
        )
        tokens = engine.finish()
    except (Deadlock, Stalled) as error:
        raise type(error)(f"{error}\n{engine.unfinished()}") from error
    finally:
        device.close()
    _require_expected(tokens, scenario)
    return Result(scenario, engine.timeline, tokens, measure(engine.timeline, scenario.workload))


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Keep the collector from pausing a run: it would scan the growing timeline again and again, and free nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _require_expected(tokens: list[list[int]], scenario: Scenario) -> None:
    for request, found in zip(scenario.workload.requests, tokens, strict=True):
        expected = expected_tokens(request)
        if found != expected:
            raise RunFailed(
                f"scenario {scenario.id!r}: request {request.id} got tokens {found[:4]}…, expected {expected[:4]}…; "
                "its inputs were overwritten or read before they were there"
            )
