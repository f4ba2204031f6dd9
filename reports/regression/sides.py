"""The two sides of a comparison: which cases match, and what a sample of each is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reports.cases import REFERENCE, case_id, split_case_id
from reports.regression.change import Samples
from reports.regression.results import Key, ResultFile, Values, samples


@dataclass(frozen=True, slots=True)
class Match:
    """Cases matched in both directions."""

    common: list[Key]
    only_base: list[str]
    only_head: list[str]
    rescaled: list[str]
    """Cases of another time scale, in words: their times cannot be compared."""


def match(base: Sequence[ResultFile], head: Sequence[ResultFile]) -> Match:
    """Match the cases of two sides."""
    before, after = _time_scales(base), _time_scales(head)
    both = [key for key in before if key in after]
    return Match(
        common=[key for key in both if len(before[key] | after[key]) == 1],
        only_base=[str(key) for key in before if key not in after],
        only_head=[str(key) for key in after if key not in before],
        rescaled=[
            f"{key}: time scale {sorted(before[key])} in base, {sorted(after[key])} in head"
            for key in both
            if len(before[key] | after[key]) > 1
        ],
    )


def _time_scales(files: Sequence[ResultFile]) -> dict[Key, set[float]]:
    found: dict[Key, set[float]] = {}
    for file in files:
        for key, case in file.cases.items():
            found.setdefault(key, set()).add(case.scale)
    return found


def reference(key: Key) -> Key:
    """Return the case of `normal` in the same experiment."""
    experiment, _ = split_case_id(key.case)
    return Key(key.device, case_id(experiment, REFERENCE))


@dataclass(frozen=True, slots=True)
class Sides:
    """Turns rounds into samples."""

    base: Sequence[ResultFile]
    head: Sequence[ResultFile]
    is_paired: bool
    unit: str
    is_ratio: bool

    def samples(self, key: Key, metric: str) -> tuple[Samples | Values, Samples | Values]:
        """Return a metric's samples of both sides, or why a side has none."""
        base, head = self.base, self.head
        if self.is_paired:
            both = [pair for pair in zip(base, head, strict=True) if all(key in file.cases for file in pair)]
            base, head = [pair[0] for pair in both], [pair[1] for pair in both]
        return self._values(base, key, metric), self._values(head, key, metric)

    def reference_mean(self, key: Key, metric: str) -> float:
        """Return the base side's mean of a metric of `normal` in the same experiment."""
        found = samples(self.base, reference(key), metric)
        return 1.0 if isinstance(found, Values) else float(np.mean([np.mean(rounds) for rounds in found]))

    def _values(self, files: Sequence[ResultFile], key: Key, metric: str) -> Samples | Values:
        if self.is_ratio:
            files = [file for file in files if reference(key) in file.cases]
        found = samples(files, key, metric)
        if isinstance(found, Values):
            return found
        if self.is_ratio:
            by = samples(files, reference(key), metric)
            if isinstance(by, Values) or not all(value for rounds in by for value in rounds):
                return Values.UNDEFINED
            # Rounds of one process are paired.
            found = [[a / b for a, b in zip(own, other, strict=False)] for own, other in zip(found, by, strict=False)]
        if self.unit == "process":
            return np.array([np.mean(rounds) for rounds in found], dtype=np.float64)
        return np.array([value for rounds in found for value in rounds], dtype=np.float64)
