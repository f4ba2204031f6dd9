"""What a metric is, and how large a change of it must be to count; the numbers are in one TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from reports.files import FileError
from reports.regression.results import METRICS, Key

PATH = Path(__file__).resolve().parent.parent.parent / "perf" / "gate.toml"
LARGEST = 1e18
"""No threshold comes near, in any unit."""
FALSE_ALARM_RATE = 0.01
"""Probability, at most, that a comparison of equal commits calls any of its rows a regression."""
POWER = 0.95
"""Probability with which the smallest visible regression of a row would have been found."""


class Better(Enum):
    """Which way a metric improves."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


class Scale(Enum):
    """How a change is expressed: as a ratio head / base, or as a difference head − base."""

    RATIO = "ratio"
    DIFFERENCE = "difference"


@dataclass(frozen=True, slots=True)
class Metric:
    """What a metric of `impl.metrics.Summary` is."""

    better: Better
    scale: Scale = Scale.RATIO
    unit: str = "ns"
    is_count: bool = False


_TIME = Metric(Better.LOWER)
KINDS: Mapping[str, Metric] = {name: _TIME for name in METRICS if name.endswith("_ns")} | {
    "throughput_rps": Metric(Better.HIGHER, unit="req/s"),
    "num_forwards": Metric(Better.LOWER, unit="", is_count=True),
    "num_surplus_tokens": Metric(Better.LOWER, Scale.DIFFERENCE, unit="", is_count=True),
    "batch_size_mean": Metric(Better.NEITHER, unit=""),
    "launch_lead": Metric(Better.HIGHER, Scale.DIFFERENCE, unit="share"),
    "gpu_idle_share": Metric(Better.LOWER, Scale.DIFFERENCE, unit="share"),
}
"""Every metric of the suite."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How large a change must be; counts only where time is real, for exact values any change counts."""

    relative: float
    """Share of the base by which the metric must change."""
    absolute: float
    """And by how much in its own unit."""
    visible: float
    """A comparison that could not have shown a regression of this size is undecided: a share of the base, or in
    the metric's own unit where changes are differences."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the gate runs on a device."""

    experiments: tuple[str, ...]
    """Empty for all."""
    rounds: int
    """Paired rounds of each experiment in one process."""
    pairs: tuple[int, ...]
    """Numbers of pairs of processes after which it looks at the data."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The whole file."""

    path: Path
    plans: Mapping[str, Plan]
    metrics: Mapping[str, Rule]
    process_luck: float
    """Standard deviation between processes of one commit, as a share, where too few were recorded to measure it."""
    overrides: tuple[tuple[str, str, Mapping[str, float]], ...] = field(default=())
    """Pattern of cases, metric, and the numbers that differ there; the last match wins."""

    def unmatched(self, cases: Iterable[str]) -> list[str]:
        """Return patterns of overrides that match no case."""
        known = list(cases)
        return [p for p, *_ in self.overrides if not any(fnmatchcase(case, p) for case in known)]

    def is_judged(self, metric: str) -> bool:
        """Return whether a metric takes part in the verdict where time is real."""
        return metric in self.metrics

    def rule(self, key: Key, metric: str) -> Rule:
        """Return the rule for a judged metric of a case."""
        found = self.metrics[metric]
        for pattern, name, numbers in self.overrides:
            if name == metric and fnmatchcase(key.case, pattern):
                found = replace(found, **numbers)
        return found

    def plan(self, device: str) -> Plan:
        """Return the plan for a device.

        Raises:
            FileError: if the file has none.
        """
        if device not in self.plans:
            raise FileError(f"{self.path}: has no table [gate.{device}]; there are: {', '.join(self.plans)}")
        return self.plans[device]


def read_rules(path: Path = PATH) -> Rules:
    """Read the file.

    Raises:
        FileError: naming file, field and what is allowed.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:  # of which TOMLDecodeError is one
        raise FileError(f"{path}: not valid TOML: {error}") from error
    _refuse_unknown(path, "", data, ("gate", "compare", "metrics", "override"))
    luck = _numbers(path, "compare", data.get("compare"), ("process_luck",))
    if "process_luck" not in luck:
        raise FileError(f"{path}: field 'compare' lacks process_luck")
    plans = {name: _plan(path, name, table) for name, table in _table(path, "gate", data.get("gate")).items()}
    metrics = {}
    for name, table in _table(path, "metrics", data.get("metrics")).items():
        _require_metric(path, f"metrics.{name}", name)
        numbers = _numbers(path, f"metrics.{name}", table)
        missing = set(Rule.__dataclass_fields__) - set(numbers)
        if missing:
            raise FileError(f"{path}: field 'metrics.{name}' lacks {', '.join(sorted(missing))}")
        metrics[name] = Rule(**numbers)
    if not metrics:
        raise FileError(f"{path}: field 'metrics' is empty: nothing would be judged")
    overrides = data.get("override", [])
    if not isinstance(overrides, list):
        raise FileError(f"{path}: field 'override' is no array of tables; write [[override]]")
    return Rules(
        path,
        plans,
        metrics,
        luck["process_luck"],
        tuple(_override(path, i, table, metrics) for i, table in enumerate(overrides)),
    )


def _plan(path: Path, device: str, table: object) -> Plan:
    field_name = f"gate.{device}"
    found = _table(path, field_name, table)
    _refuse_unknown(path, field_name + ".", found, Plan.__dataclass_fields__)
    experiments, rounds, pairs = found.get("experiments", []), found.get("rounds", 1), found.get("pairs")
    if not isinstance(experiments, list) or not all(isinstance(name, str) and name for name in experiments):
        raise FileError(f"{path}: field '{field_name}.experiments' is {experiments!r}; expected a list of ids")
    if not _is_whole(rounds):
        raise FileError(f"{path}: field '{field_name}.rounds' is {rounds!r}; expected a whole number of at least 1")
    if not isinstance(pairs, list) or not pairs or not all(map(_is_whole, pairs)) or sorted(set(pairs)) != pairs:
        raise FileError(f"{path}: field '{field_name}.pairs' is {pairs!r}; expected rising whole numbers, as [6, 12]")
    if device != "virtual" and pairs[0] < 2:
        raise FileError(f"{path}: field '{field_name}.pairs' begins with {pairs[0]}; where time is real, at least 2")
    return Plan(tuple(experiments), rounds, tuple(pairs))


def _override(
    path: Path, index: int, table: object, metrics: Mapping[str, Rule]
) -> tuple[str, str, Mapping[str, float]]:
    field_name = f"override[{index}]"
    found = dict(_table(path, field_name, table))
    case, metric = found.pop("case", None), found.pop("metric", None)
    if not isinstance(case, str) or not case:
        raise FileError(f"{path}: field '{field_name}.case' is {case!r}; expected a pattern, as \"saturated/*\"")
    if metric not in metrics:
        raise FileError(f"{path}: field '{field_name}.metric' is {metric!r}; expected one of {', '.join(metrics)}")
    return case, metric, _numbers(path, field_name, found)


def _numbers(
    path: Path, field_name: str, table: object, known: Iterable[str] = tuple(Rule.__dataclass_fields__)
) -> dict[str, float]:
    found = _table(path, field_name, table)
    _refuse_unknown(path, field_name + ".", found, known)
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= LARGEST:
            raise FileError(f"{path}: field '{field_name}.{name}' is {value!r}; expected a number of at least 0")
    return {name: float(value) for name, value in found.items()}


def _table(path: Path, field_name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise FileError(f"{path}: field {field_name!r} is {value!r}; expected a table")
    return value


def _refuse_unknown(path: Path, prefix: str, found: Mapping[str, Any], known: Iterable[str]) -> None:
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise FileError(f"{path}: field '{prefix}{unknown[0]}' is unknown; allowed: {', '.join(known)}")


def _require_metric(path: Path, field_name: str, name: str) -> None:
    if name not in KINDS:
        raise FileError(f"{path}: field {field_name!r} names no metric; there are: {', '.join(KINDS)}")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
