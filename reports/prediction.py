"""How well the virtual device predicts a real machine, told that machine's host overhead.

The overhead is measured once for each mean batch size and way in which threads share the work. The virtual device then
runs the experiment itself, with its own arrivals and batching, and with that much added to its stages.

Whether a request makes or misses a batch depends on microseconds. A calibration knows a stage only to tens of them, as
it has one batch size. So the virtual device runs several times, with pre, forward and post shorter or longer by up to
that much, and predicts the median: one batch more or less in a few of these runs does not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from impl.engine import Scheduler
from impl.errors import RunFailed
from impl.experiment import Scenario, run
from impl.machines import Machine
from impl.schedulers import SCHEDULERS
from reports.measure import Rounds
from reports.overheads import (
    Overheads,
    calibrator_of,
    measure_overheads,
    with_late_launches,
    with_measured_forwards,
    with_measured_launches,
)
from reports.verdict import uncertainty

OFFSETS_NS = range(-40_000, 40_001, 10_000)
"""Added to pre, forward and post, all at once, one virtual run each; nanoseconds."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the virtual device said of one scheduler, and what was measured: the median over rounds, which of three or
    more one stalled round hardly moves. Errors are relative to the measurement.
    """

    scheduler: str
    throughput_rps: float
    throughput_measured_rps: float
    throughput_spread: float
    """What the prediction is itself uncertain by: half the range of the shifted runs, relative to their median."""
    ttft_ns: float
    ttft_measured_ns: float
    ttft_spread: float
    """The same for mean TTFT."""

    @property
    def throughput_error(self) -> float:
        """Predicted over measured throughput, minus 1."""
        return self.throughput_rps / self.throughput_measured_rps - 1

    @property
    def ttft_error(self) -> float:
        """Predicted over measured mean TTFT, minus 1."""
        return self.ttft_ns / self.ttft_measured_ns - 1


def predict(
    rounds: Rounds, schedulers: Mapping[str, Scheduler], machine: Machine
) -> tuple[list[Prediction], dict[str, RunFailed]]:
    """Predict measured rounds on the virtual device, scheduler by scheduler.

    Returns:
        The predictions, and the error of each scheduler that failed in its own burst or in virtual time.

    Raises:
        RunFailed: if a calibrating scheduler fails.
    """
    is_literal = rounds.scenario.settings.matmuls is not None
    scenario = with_measured_forwards(rounds) if is_literal else rounds.scenario
    calibrated: dict[tuple[str, int], Overheads] = {}
    found = []
    failed = {}
    for name in rounds.results:
        batch_size = round(fmean(rounds.metric("batch_size_mean", name)))
        calibrator = calibrator_of(rounds.of(name)[0].timeline)
        if (calibrator, batch_size) not in calibrated:
            calibrated[calibrator, batch_size] = measure_overheads(
                machine, SCHEDULERS[calibrator], scenario, batch_size
            )
        overheads = calibrated[calibrator, batch_size]
        if is_literal:
            overheads = with_measured_launches(overheads, rounds, name)
        try:
            if calibrator not in ("normal", name):
                overheads = with_late_launches(overheads, machine, schedulers[name], scenario, batch_size)
            throughputs_rps, ttfts_ns = zip(
                *(_simulate(overheads, offset_ns, schedulers[name], scenario) for offset_ns in OFFSETS_NS), strict=True
            )
        except RunFailed as error:  # a user's scheduler may: the others go on
            failed[name] = error
            continue
        found.append(
            Prediction(
                name,
                median(throughputs_rps),
                median(rounds.metric("throughput_rps", name)),
                _spread(throughputs_rps),
                median(ttfts_ns),
                median(rounds.metric("ttft_mean_ns", name)),
                _spread(ttfts_ns),
            )
        )
    return found, failed


def _simulate(overheads: Overheads, offset_ns: int, scheduler: Scheduler, scenario: Scenario) -> tuple[float, float]:
    """Return requests a second and mean TTFT in nanoseconds of a virtual run with pre, forward and post shifted."""
    shifted = replace(
        overheads,
        pre_ns=overheads.pre_ns + offset_ns,
        forward_ns=overheads.forward_ns + offset_ns,
        post_ns=overheads.post_ns + offset_ns,
    )
    summary = run(scheduler, shifted.apply(scenario), shifted.machine()).metrics.summary
    assert summary.throughput_rps is not None, "a run with a real machine's overheads takes time"
    return summary.throughput_rps, summary.ttft_mean_ns


def _spread(values: Sequence[float]) -> float:
    return (max(values) - min(values)) / 2 / median(values)


def misses(prediction: Prediction, rounds: Rounds, allowed: tuple[float, float]) -> list[str]:
    """Return in words where a prediction is further off than allowed.

    Measurement and prediction are both uncertain: half of the 95 % interval of the mean over rounds is allowed too, and
    half the range of the shifted runs, but at most twice the bound in all.

    Args:
        prediction: of one scheduler.
        rounds: that it was compared with.
        allowed: relative errors of throughput and mean TTFT.
    """
    errors = {
        "throughput_rps": (prediction.throughput_error, prediction.throughput_spread),
        "ttft_mean_ns": (prediction.ttft_error, prediction.ttft_spread),
    }
    found = []
    for (metric, (error, spread)), bound in zip(errors.items(), allowed, strict=True):
        limit = bound + min(bound, uncertainty(rounds.metric(metric, prediction.scheduler)) + spread)
        if abs(error) > limit:
            found.append(f"{metric} of {prediction.scheduler}: {error:+.2%}, allowed ±{limit:.2%}")
    return found
