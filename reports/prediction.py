"""How well the virtual device predicts a real machine: told the machine's own host overhead, and nothing else.

A real step takes more host time than the modelled stages: the scheduler's Python code, the upload, the launch, the
wake-up after the GPU. One short calibration run measures it; the virtual device then runs the same scenario with that
much added to pre, launch and post.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean, median

from impl.batching import Single
from impl.costs import Cost, Costs, cost_ms
from impl.engine import Scheduler
from impl.experiment import Scenario, run
from impl.machines import Machine, VirtualMachine
from impl.schedulers.normal import normal
from impl.timeline import FORWARD, LAUNCH, POST, PRE, Span
from impl.workload import burst
from reports.machine import has_gil
from reports.measure import Rounds

CALIBRATION = Scenario(
    "calibration",
    burst(24),
    Single(),
    Costs(pre=cost_ms(8), forward=cost_ms(12), post=cost_ms(8)),
)
"""Stages as long as the scaled experiments' are: short pauses leave caches warm and overheads small."""
NUM_WARM_UP_STEPS = 4
GIL_RELEASES = {"cuda": 4}
"""Graph replays in a launch on CUDA after the first one: two more units of the forward, the tokens, their copy."""


@dataclass(frozen=True, slots=True)
class Overheads:
    """Host time that a step of `normal` takes beyond the modelled stages, in nanoseconds."""

    pre_ns: int
    """From the end of the previous post to the end of pre: taking a batch and uploading its inputs."""
    launch_ns: int
    """From the end of pre until the forward starts on the device."""
    forward_ns: int
    """By which forwards last longer than asked for."""
    post_ns: int
    """From the end of the forward to the end of post: copy, wake-up and bookkeeping."""

    gil_releases: int
    """How often a launch lets go of the GIL."""

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


def _longer(cost: Cost, by_ns: int) -> Cost:
    return replace(cost, fixed_ns=max(0, cost.fixed_ns + by_ns))


def measure_overheads(machine: Machine) -> Overheads:
    """Measure a machine's overheads in one short run, medians over its steps."""
    timeline = run(normal, CALIBRATION, machine).timeline
    costs = CALIBRATION.costs
    of: dict[str, dict[int, Span]] = {stage: {} for stage in (PRE, LAUNCH, FORWARD, POST)}
    for span in timeline.spans:
        if span.stage in of:
            of[span.stage][span.batch_id] = span
    steps = range(NUM_WARM_UP_STEPS, len(of[FORWARD]))
    return Overheads(
        pre_ns=round(median(of[PRE][i].end_ns - of[POST][i - 1].end_ns for i in steps)) - costs.pre.fixed_ns,
        launch_ns=round(median(of[FORWARD][i].start_ns - of[PRE][i].end_ns for i in steps)),
        forward_ns=round(median(of[FORWARD][i].end_ns - of[FORWARD][i].start_ns for i in steps))
        - costs.forward.fixed_ns,
        gil_releases=GIL_RELEASES.get(machine.name, 0),
        post_ns=round(median(of[POST][i].end_ns - of[FORWARD][i].end_ns for i in steps)) - costs.post.fixed_ns,
    )


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the virtual device said of one scheduler, and what was measured; errors are relative to the measurement."""

    scheduler: str
    throughput_rps: float
    throughput_measured_rps: float
    ttft_ns: float
    ttft_measured_ns: float

    @property
    def throughput_error(self) -> float:
        """Predicted over measured throughput, minus 1."""
        return self.throughput_rps / self.throughput_measured_rps - 1

    @property
    def ttft_error(self) -> float:
        """Predicted over measured mean TTFT, minus 1."""
        return self.ttft_ns / self.ttft_measured_ns - 1


def predict(rounds: Rounds, schedulers: dict[str, Scheduler], overheads: Overheads) -> list[Prediction]:
    """Predict measured rounds on the virtual device, scheduler by scheduler."""
    told = overheads.apply(with_measured_forwards(rounds) if rounds.scenario.settings.matmuls else rounds.scenario)
    virtual = VirtualMachine(has_gil=has_gil(), gil_releases=overheads.gil_releases)
    found = []
    for name in rounds.results:
        predicted = Rounds(told, {name: [run(schedulers[name], told, virtual)]})
        found.append(
            Prediction(
                name,
                fmean(predicted.metric("throughput_rps", name)),
                fmean(rounds.metric("throughput_rps", name)),
                fmean(predicted.metric("ttft_mean_ns", name)),
                fmean(rounds.metric("ttft_mean_ns", name)),
            )
        )
    return found


def with_measured_forwards(rounds: Rounds) -> Scenario:
    """Return the scenario with the forward times measured under `normal`: literal products take what they take."""
    prefill, decode = [], []
    for result in rounds.of("normal"):
        for forward in result.metrics.forwards:
            (prefill if forward.num_tokens > forward.size else decode).append(forward.end_ns - forward.start_ns)
    fixed_ns = round(median(decode))
    per_token_ns = 0
    if prefill:
        tokens = max(request.prompt_tokens for request in rounds.scenario.workload.requests)
        per_token_ns = round((median(prefill) - fixed_ns) / (tokens - 1))
    forward = Cost(fixed_ns=fixed_ns - per_token_ns, per_token_ns=per_token_ns)
    return replace(rounds.scenario, costs=replace(rounds.scenario.costs, forward=forward))
