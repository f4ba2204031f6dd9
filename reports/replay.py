"""Feeds measured run times to pytest-benchmark, whose JSON, storage and `compare` then work as its users expect.

The paired rounds were measured before, on the run's own clock, real or virtual. The benchmark's timer reads a
clock that the "benchmarked" call moves on by the next measured time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pytest_benchmark.fixture import BenchmarkFixture

from impl.diagnosis import diagnose
from impl.workload import NS_PER_S
from reports.cases import Case
from reports.measure import Rounds

SCHEMA = 1
"""Version of what `extra_info` returns."""


class ReplayClock:
    """A timer in seconds that only moves when told to."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._times_s: Iterator[float] = iter(())

    def __call__(self) -> float:
        return self._now_s

    def load(self, times_s: Sequence[float]) -> None:
        """Set the times that the next calls of `advance` take, in seconds."""
        self._times_s = iter(times_s)

    def reset(self) -> None:
        """Start at zero again, so that a difference of two readings is a measured time to the last bit."""
        self._now_s = 0.0

    def advance(self) -> None:
        """Let the next measured time pass."""
        self._now_s += next(self._times_s)


CLOCK = ReplayClock()


def enter(benchmark: BenchmarkFixture, case: Case, device: str, rounds: Rounds) -> None:
    """Fill a case's benchmark entry: run times as its samples, all metrics of every round beside them."""
    results = rounds.of(case.scheduler)
    CLOCK.load([result.metrics.summary.total_ns / NS_PER_S for result in results])
    benchmark.pedantic(CLOCK.advance, setup=CLOCK.reset, rounds=len(results), iterations=1)
    benchmark.extra_info.update(
        extra_info(
            experiment=case.experiment.id,
            scheduler=case.scheduler,
            device=device,
            section=case.experiment.section,
            scale=1.0 if device == "virtual" else case.experiment.real_scale,
            rounds=[asdict(result.metrics.summary) for result in results],
            gpu=[None if state is None else asdict(state) for state in rounds.states.get(case.scheduler, [])],
            left_out=rounds.left_out,
            overlap=[diagnose(result.timeline, result.scenario.workload).finding.name for result in results],
        )
    )


def extra_info(
    *,
    experiment: str,
    scheduler: str,
    device: str,
    section: str,
    scale: float,
    rounds: Sequence[Mapping[str, Any]],
    gpu: Sequence[Mapping[str, Any] | None],
    left_out: Sequence[str],
    overlap: Sequence[str],
) -> dict[str, Any]:
    """Return what a case's benchmark entry holds beside its run times; readers of results rely on these names.

    Args:
        experiment: its id.
        scheduler: its name in the experiment.
        device: where it ran.
        section: the article's.
        scale: factor on the experiment's times.
        rounds: all metrics of every round; times in nanoseconds.
        gpu: what the GPU did during each round, where it was sampled; clocks in MHz, power in watts.
        left_out: rounds that were repeated because the GPU throttled, and why.
        overlap: what the diagnosis found in each round.
    """
    return {
        "schema": SCHEMA,
        "experiment": experiment,
        "scheduler": scheduler,
        "device": device,
        "section": section,
        "scale": scale,
        "rounds": rounds,
        "gpu": gpu,
        "left_out": left_out,
        "overlap": overlap,
    }
