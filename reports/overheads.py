"""What the virtual device is told of a real machine: the host time of a step beyond its modelled stages.

A real step takes more host time than the modelled stages: the scheduler's Python code, the upload, the launch, the
wake-up after the GPU. Short calibration runs measure it: a burst with the experiment's stage times (pauses of that
length decide how cold the caches are) in batches of the measured run's mean size.

Launches of just in time are late now and then, which no stage's median shows. So schedulers that launch in a thread of
their own, other than the calibrating ones, run such a burst themselves too, and the virtual device's forwards are
lengthened by what the GPU waited in it.

Literal forwards take what they take, and the host is not equally quick with their many launches at all times: measured
times are told of both, of launches within `MOST_TOLD`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median

from impl.batching import Dynamic
from impl.costs import Cost, Costs, WorkKind
from impl.device.protocol import GilReleases
from impl.engine import Scheduler
from impl.experiment import Scenario, run
from impl.machines import Machine, VirtualMachine
from impl.timeline import FORWARD, LAUNCH, POST, PRE, Span, Timeline
from impl.workload import burst
from reports.machine import has_gil
from reports.measure import Rounds

NUM_CALIBRATION_STEPS = 10
NUM_OWN_STEPS = 20
"""Steps of a burst under the predicted scheduler itself: just-in-time launches are late only once in about eight."""
MOST_FITTED = 0.03
"""Share of a step by which forwards are fitted at most: more is no late launch but another order of steps."""
MOST_TOLD = 2
"""Launch tails of literal forwards are told as measured up to this many times the calibration's."""
NUM_WARM_UP_STEPS = 3


@dataclass(frozen=True, slots=True)
class Overheads:
    """Host time that a step takes beyond the modelled stages, in nanoseconds."""

    pre_ns: int
    """Taking a batch and uploading its inputs."""
    launch_ns: int
    """Until the forward starts on the device, or until the launch returns if the device is busy."""
    forward_ns: int
    """By which forwards last longer than asked for, and what the GPU waits; see `with_late_launches`."""
    post_ns: int
    """Copy, wake-up after the forward, and bookkeeping."""
    launch_tail_ns: int
    """From the start of a forward until its launch returns, where the device was idle."""
    gil_releases: GilReleases
    """Of calls into the device."""

    def apply(self, scenario: Scenario) -> Scenario:
        """Return the scenario with the overheads added to its stages."""
        costs = scenario.costs
        return replace(
            scenario,
            costs=replace(
                costs,
                pre=_longer(costs.pre, self.pre_ns),
                launch=_longer(costs.launch, self.launch_ns),
                forward=_longer(costs.forward, self.forward_ns),
                post=_longer(costs.post, self.post_ns),
            ),
        )

    def machine(self) -> VirtualMachine:
        """Return a virtual device with these overheads."""
        return VirtualMachine(has_gil=has_gil(), launch_tail_ns=self.launch_tail_ns, gil_releases=self.gil_releases)


def _longer(cost: Cost, by_ns: int) -> Cost:
    return replace(cost, fixed_ns=max(0, cost.fixed_ns + by_ns))


def calibrator_of(timeline: Timeline) -> str:
    """Return the scheduler that calibrates one whose threads share the work in the same way, read off a run of it."""
    lanes = {stage: timeline.stage(stage)[0].lane for stage in (PRE, LAUNCH, POST)}
    if lanes[LAUNCH] == lanes[PRE]:
        return "normal"
    return "overlap_worker_thread" if lanes[POST] == lanes[PRE] else "overlap_three_thread"


def measure_overheads(machine: Machine, scheduler: Scheduler, scenario: Scenario, batch_size: int) -> Overheads:
    """Measure a scheduler's overheads on a machine in one short run, as medians over its steps.

    Where one thread waits for another, both stages end late for the same reason, and it is counted twice. So the
    virtual device predicts the calibration run itself, and what its step is too long comes off the last stage.
    """
    calibration = _calibration(scenario, batch_size, NUM_CALIBRATION_STEPS)
    timeline = run(scheduler, calibration, machine).timeline
    found = _overheads(timeline, calibration.costs, batch_size, machine.gil_releases)
    predicted = run(scheduler, found.apply(calibration), found.machine()).timeline
    too_long_ns = median(_steps_ns(predicted)) - median(_steps_ns(timeline))
    return replace(found, post_ns=found.post_ns - round(too_long_ns))


def with_late_launches(
    overheads: Overheads, machine: Machine, scheduler: Scheduler, scenario: Scenario, batch_size: int
) -> Overheads:
    """Fit the forward to the scheduler's own mean step in a short run: launches that are late make the GPU wait.

    It stays as it is if something runs between the virtual GPU's forwards or it waits itself, for then the host sets
    the pace, and if the difference is more than `MOST_FITTED` of a step, either way.
    """
    calibration = _calibration(scenario, batch_size, NUM_OWN_STEPS)
    predicted = run(scheduler, overheads.apply(calibration), overheads.machine()).timeline
    forwards = predicted.stage(FORWARD)[NUM_WARM_UP_STEPS:]
    if any(after.start_ns != before.end_ns for before, after in pairwise(forwards)):
        return overheads
    step_ns = fmean(_steps_ns(predicted))
    difference_ns = fmean(_steps_ns(run(scheduler, calibration, machine).timeline)) - step_ns
    if abs(difference_ns) > MOST_FITTED * step_ns:
        return overheads
    return replace(overheads, forward_ns=overheads.forward_ns + round(difference_ns))


def _calibration(scenario: Scenario, batch_size: int, num_steps: int) -> Scenario:
    """Return a burst of full batches with the scenario's stage times."""
    # Without the GIL in play: what threads wait for each other is for the virtual device to predict.
    costs = replace(scenario.costs, host_work=WorkKind.SLEEP)
    return replace(scenario, workload=burst(num_steps * batch_size), batching=Dynamic(batch_size), costs=costs)


def _steps_ns(timeline: Timeline) -> list[int]:
    """Return the times from one step's end to the next one's, after the warm-up and without the last step, during
    which no next batch is prepared.
    """
    ends = [span.end_ns for span in timeline.stage(POST)][NUM_WARM_UP_STEPS - 1 : -1]
    return [after - before for before, after in pairwise(ends)]


def _overheads(timeline: Timeline, costs: Costs, batch_size: int, gil_releases: GilReleases) -> Overheads:
    """Read the overheads off a calibration run.

    A stage's overhead is the time by which it ends later than it could have: it can start when its thread has
    finished the stage before and its input is there.
    """
    forwards = {span.batch_id: span for span in timeline.stage(FORWARD)}
    prepared = {span.batch_id: span.end_ns for span in timeline.stage(PRE)}
    excess: dict[str, list[int]] = defaultdict(list)
    free_ns: dict[str, int] = {}
    """When each host thread finished its last stage."""
    for span in sorted(timeline.spans, key=lambda span: span.start_ns):
        if span.stage not in (PRE, LAUNCH, POST):
            continue
        start_ns = free_ns.get(span.lane, timeline.started_ns)
        free_ns[span.lane] = span.end_ns
        if span.batch_id >= NUM_WARM_UP_STEPS:
            ready_ns = _ready_ns(span, prepared, forwards)
            excess[span.stage].append(
                _end_ns(span, forwards) - max(start_ns, ready_ns) - _cost_ns(span, costs, batch_size)
            )
    wanted_ns = _batch_ns(costs.forward, batch_size)
    tails = [
        span.end_ns - forwards[span.batch_id].start_ns
        for span in timeline.stage(LAUNCH)
        if span.batch_id >= NUM_WARM_UP_STEPS
    ]
    longer = [f.end_ns - f.start_ns - wanted_ns for f in list(forwards.values())[NUM_WARM_UP_STEPS:]]
    return Overheads(
        pre_ns=round(median(excess[PRE])),
        launch_ns=round(median(excess[LAUNCH])),
        forward_ns=round(median(longer)),
        post_ns=round(median(excess[POST])),
        launch_tail_ns=max(0, round(median(tails))),
        gil_releases=gil_releases,
    )


def _ready_ns(span: Span, prepared: Mapping[int, int], forwards: Mapping[int, Span]) -> int:
    if span.stage == LAUNCH:
        return prepared[span.batch_id]
    return forwards[span.batch_id].end_ns if span.stage == POST else 0


def _end_ns(span: Span, forwards: Mapping[int, Span]) -> int:
    if span.stage == LAUNCH:
        return min(span.end_ns, max(span.start_ns, forwards[span.batch_id].start_ns))
    return span.end_ns


def _cost_ns(span: Span, costs: Costs, batch_size: int) -> int:
    return _batch_ns({PRE: costs.pre, LAUNCH: costs.launch, POST: costs.post}[span.stage], batch_size)


def _batch_ns(cost: Cost, batch_size: int) -> int:
    """Return the cost of a batch of requests with one token each, as the calibration runs them."""
    return cost.fixed_ns + (cost.per_request_ns + cost.per_token_ns) * batch_size


def with_measured_forwards(rounds: Rounds) -> Scenario:
    """Return the scenario with the forward times measured under `normal`: literal products take what they take."""
    prefill: list[int] = []
    decode: list[int] = []
    for result in rounds.of("normal"):
        for run_forward in result.metrics.forwards:
            times_ns = prefill if run_forward.num_tokens > run_forward.size else decode
            times_ns.append(run_forward.end_ns - run_forward.start_ns)
    fixed_ns = round(median(decode))
    per_token_ns = 0
    if prefill:
        tokens = max(request.prompt_tokens for request in rounds.scenario.workload.requests)
        per_token_ns = round((median(prefill) - fixed_ns) / (tokens - 1))
    forward = Cost(fixed_ns=fixed_ns - per_token_ns, per_token_ns=per_token_ns)
    return replace(rounds.scenario, costs=replace(rounds.scenario.costs, forward=forward))


def with_measured_launches(overheads: Overheads, rounds: Rounds, scheduler: str) -> Overheads:
    """Return the overheads with the launch tail of this scheduler's own rounds: the median over rounds of their means.

    On an H200's host a thousand launches took 12 or 17 ms, for seconds at a time, whatever a calibration met. A tail of
    more than `MOST_TOLD` times the calibration's stays the calibration's: such a launch waits for something, as for the
    GPU, and to tell it would hide a miss. (A shorter wait, or one that the calibration has too, is not seen.) It also
    stays where stages compute: what a launch waits for the GIL is for the virtual device to predict.
    """
    if rounds.scenario.costs.host_work is WorkKind.SPIN:
        return overheads
    told_ns = max(0, round(median(fmean(_tails_ns(result.timeline)) for result in rounds.of(scheduler))))
    if told_ns > MOST_TOLD * overheads.launch_tail_ns:
        return overheads
    return replace(overheads, launch_tail_ns=told_ns)


def _tails_ns(timeline: Timeline) -> list[int]:
    """Return how long launches went on after their forwards' start: of those begun while the device was idle, as the
    first is.
    """
    forwards = {span.batch_id: span for span in timeline.stage(FORWARD)}
    tails_ns = []
    busy_until_ns = timeline.started_ns
    for span in timeline.stage(LAUNCH):
        forward = forwards[span.batch_id]
        if span.start_ns >= busy_until_ns:
            tails_ns.append(span.end_ns - forward.start_ns)
        busy_until_ns = forward.end_ns
    return tails_ns
