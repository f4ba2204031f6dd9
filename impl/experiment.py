"""One experiment: a scheduler, a scenario and a machine in; tokens, timeline and metrics out."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise

from impl.batching import Batching
from impl.core import Batch, Item
from impl.costs import Costs
from impl.device.protocol import DeviceSettings
from impl.engine import Engine, Scheduler
from impl.errors import Deadlock, RunFailed, RunInvalid, SettingError, Stalled
from impl.machines import Machine
from impl.metrics import Metrics, measure
from impl.ranges import nvtx_ranges
from impl.timeline import Timeline
from impl.tokens import expected_tokens
from impl.workload import NS_PER_S, Workload

LATE_SHARE = 0.01
LATE_FLOOR_NS = 1_000_000
"""An arrival may be late by 1 % of the mean gap or 1 ms, whichever is larger."""
MAX_ATTEMPTS = 3
STALL_FLOOR_S = 5.0
STALL_FACTOR = 3
"""A run counts as stalled after the floor and this many times its longest expected silence."""
STALL_FLOOR_UNDER_TOOL_S = 3600.0
"""The floor under ncu and compute-sanitizer, which hold up a launch while they replay or check its kernels: ncu takes
0.3 s for each, and a forward may have 3,000.
"""
TOOL_VARIABLES = ("NV_COMPUTE_PROFILER_PERFWORKS_DIR", "NV_SANITIZER_INJECTION_PORT_RANGE_BEGIN")
"""Environment variables that ncu and compute-sanitizer set for the program they run."""
LARGEST_EXPECTED_BATCH = 64
"""Requests of a batch whose stages the stall time allows for."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is served and what it costs; the same for every scheduler and machine."""

    id: str
    workload: Workload
    batching: Batching
    costs: Costs
    settings: DeviceSettings = field(default_factory=DeviceSettings)

    def __post_init__(self) -> None:
        if not self.id or "/" in self.id:
            raise SettingError(
                f"scenario id {self.id!r}; allowed: a name without '/', which separates it from schedulers"
            )
        self.batching.check(self.workload)

    @property
    def longest_silence_ns(self) -> int:
        """The longest stage of a large batch, or the longest gap between arrivals: so long nothing may be recorded."""
        requests = self.workload.requests
        items = [Item(r, r.prompt_tokens, 0) for r in requests[:LARGEST_EXPECTED_BATCH]]
        batch = Batch(0, items, sum(item.num_tokens for item in items), is_prefill=True)
        costs = self.costs
        stages = [cost(batch) for cost in (costs.pre, costs.launch, costs.forward, costs.copy, costs.post)]
        gaps = [after.arrival_ns - before.arrival_ns for before, after in pairwise(requests)]
        return max(*stages, *gaps, requests[0].arrival_ns)

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
        RunInvalid: if in every attempt arrivals went out late.
        RunFailed: if a thread raised, the run stalled, a request was lost or repeated, or its tokens are
            not the expected ones.
    """
    limit_ns = max(LATE_FLOOR_NS, round(LATE_SHARE * scenario.workload.mean_gap_ns))
    late_ns = 0
    for _ in range(MAX_ATTEMPTS):
        with paused_garbage_collection():
            result = _attempt(scheduler, scenario, machine)
            if machine.is_exact:
                # A virtual run leaves next to no garbage, and to scan what it made would take a tenth of its time: this
                # moves it to the oldest generation. Real runs leave threads and events in cycles, to be found at once.
                gc.freeze()
                gc.unfreeze()
        late_ns = result.timeline.late_ns
        # In virtual time only the modelled GIL makes an arrival late: part of the result, and the same every time.
        if machine.is_exact or late_ns <= limit_ns:
            return result
    raise RunInvalid(
        f"scenario {scenario.id!r}: in {MAX_ATTEMPTS} attempts an arrival reached the waiting scheduler up to "
        f"{late_ns / 1e6:.2f} ms late; allowed: {limit_ns / 1e6:.2f} ms. "
        "The machine is too busy to measure on, or the scheduler's own threads hold the GIL"
    )


def _attempt(scheduler: Scheduler, scenario: Scenario, machine: Machine) -> Result:
    runtime, device = machine.open(scenario.settings, num_forwards=len(scenario.workload.requests))
    ranges = None if machine.is_exact else nvtx_ranges()  # no profiler can see virtual time
    engine = Engine(runtime, device, scenario.workload, scenario.costs, scenario.batching, ranges)

    has_failed = True
    try:
        runtime.run(
            lambda: scheduler(engine),
            progress=engine.progress,
            stall_s=_stall_floor_s(machine) + STALL_FACTOR * scenario.longest_silence_ns / NS_PER_S,
        )
        tokens = engine.finish()
        has_failed = False
    except (Deadlock, Stalled) as error:
        raise type(error)(f"{error}\n{engine.unfinished()}") from error
    finally:
        device.close(has_failed=has_failed)
    _require_expected(tokens, scenario)
    return Result(scenario, engine.timeline, tokens, measure(engine.timeline, scenario.workload))


def _stall_floor_s(machine: Machine) -> float:
    is_held_up = not machine.is_exact and any(os.environ.get(name) for name in TOOL_VARIABLES)
    return STALL_FLOOR_UNDER_TOOL_S if is_held_up else STALL_FLOOR_S


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
