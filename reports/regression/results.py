"""Reads what a run of the suite left as pytest-benchmark JSON."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from glob import glob
from pathlib import Path
from typing import Any

from pytest_benchmark.storage.file import FileStorage

from impl.metrics import Summary
from reports.cases import case_id
from reports.files import FileError, read_object, require_number, require_schema
from reports.lab import MACHINES
from reports.replay import SCHEMA

METRICS = tuple(Summary.__dataclass_fields__)
POSITIVE = ("total_ns", "throughput_rps", "num_forwards")
"""Metrics that are never zero."""
STORAGE = Path(".benchmarks")
"""Where pytest-benchmark keeps saved runs, below the current folder."""
REMEDY = "write it again with: pytest perf --benchmark-json FILE"

MetricValues = Mapping[str, float | None]
"""The metrics of one round; None where undefined, missing where the suite that wrote it did not know the metric."""


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """A case on a device."""

    device: str
    case: str

    def __str__(self) -> str:
        return f"{self.case} on {self.device}"


@dataclass(frozen=True, slots=True)
class ClaimOutcome:
    """What a run said of a claim on a device."""

    claim: str
    device: str
    section: str
    verdict: str
    reason: str
    figure: float | None
    figure_name: str = ""
    """Empty, as the unit, where nothing was shown or an older suite wrote the file."""
    unit: str = ""


@dataclass(frozen=True, slots=True)
class CaseRounds:
    """The rounds of one case in one process."""

    key: Key
    scale: float
    """Factor on the experiment's times."""
    rounds: tuple[MetricValues, ...]


@dataclass(frozen=True, slots=True)
class ResultFile:
    """One run of the suite: the rounds of one process."""

    path: Path
    commit: str
    """Its hash, "-dirty" behind it if files were changed; empty outside version control."""
    time: str
    """Of the commit where there is one, of the run otherwise; ISO 8601."""
    machines: Mapping[str, Mapping[str, Any]]
    """Facts by device."""
    cases: Mapping[Key, CaseRounds]
    claims: tuple[ClaimOutcome, ...]
    failed: tuple[str, ...]
    """Tests that failed in that run."""
    num_foreign: int
    """Entries of other tests, which were left out."""
    written: str = ""
    """When the run was written; ISO 8601."""


def find_runs(names: Iterable[str], storage: Path = STORAGE) -> list[Path]:
    """Return the files behind paths or names of stored runs ("0003", "Linux-CPython-3.11-64bit/0003").

    Raises:
        FileError: unless each name stands for exactly one file.
    """
    return [_find_run(name, storage) for name in names]


def read_side(option: str, names: str) -> list[ResultFile]:
    """Read the runs of one side: files, patterns of files or names of stored runs, separated by commas.

    Raises:
        FileError: naming the option if there is no name, and as `read_result` does.
    """
    # A file with a comma in its name stays whole.
    parts = [names] if _is_file(names) else [name for name in names.split(",") if name]
    found = [path for name in parts for path in (sorted(glob(name)) or [name])]
    if not found:
        raise FileError(f"{option}: names no result; give a benchmark JSON or the name of a stored run")
    files = [read_result(path) for path in find_runs(found)]
    for index, file in enumerate(files):
        for other in files[:index]:
            # On a real device no two runs agree to the last bit.
            is_copy = file.cases == other.cases and any(key.device != "virtual" for key in file.cases)
            if is_copy or file.path.resolve() == other.path.resolve():
                raise FileError(f"{option}: {file.path} holds the same run as {other.path}; name each run once")
    return files


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except OSError:  # longer than a path can be
        return False


def _find_run(name: str, storage: Path) -> Path:
    if _is_file(name):
        return Path(name)
    found = []
    if storage.is_dir():  # which FileStorage would create
        try:
            found = FileStorage(str(storage), logging.getLogger(__name__)).query(name)
        except ValueError:
            found = []
    if len(found) == 1:
        return Path(found[0])
    if found:
        names = ", ".join(str(path.relative_to(storage.resolve())) for path in found[:3])
        raise FileError(f"{name}: stands for {len(found)} stored runs ({names}…); write more of the name")
    raise FileError(f"{name}: no such file, and no stored run of that name in {storage.resolve()}; {REMEDY}")


def read_result(path: Path) -> ResultFile:
    """Read one run.

    Raises:
        FileError: naming file, field and remedy, if it is damaged, of another tool, newer, or without results.
    """
    data = read_object(path, remedy=REMEDY)
    benchmarks = data.get("benchmarks")
    if not isinstance(benchmarks, list) or not all(isinstance(entry, dict) for entry in benchmarks):
        raise FileError(f"{path}: field 'benchmarks' is no list of objects: not written by pytest-benchmark; {REMEDY}")
    if not benchmarks:
        raise FileError(f"{path}: field 'benchmarks' is empty: no case ran; {REMEDY}")
    cases: dict[Key, CaseRounds] = {}
    claims: dict[tuple[str, str], ClaimOutcome] = {}
    num_foreign = 0
    for index, entry in enumerate(benchmarks):
        field = f"benchmarks[{index}].extra_info"
        info = entry.get("extra_info")
        if not isinstance(info, dict) or "schema" not in info or "experiment" not in info:
            num_foreign += 1
            continue
        require_schema(path, f"{field}.schema", info["schema"], SCHEMA)
        found = _case(path, field, info)
        if found.key in cases:
            raise FileError(f"{path}: field {field!r} holds {found.key} a second time; {REMEDY}")
        cases[found.key] = found
        for claim in _claims(path, field, info):
            claims[claim.device, claim.claim] = claim
    if not cases:
        raise FileError(f"{path}: field 'benchmarks' has {num_foreign} entries, none of a case of this suite; {REMEDY}")
    commit, time = _commit(data)
    machines = _machines(path, data, {key.device for key in cases})
    failed = data.get("overlap_failed", [])
    if not isinstance(failed, list) or not all(isinstance(test, str) for test in failed):
        raise FileError(f"{path}: field 'overlap_failed' is no list of tests; {REMEDY}")
    written = str(data.get("datetime") or "")
    return ResultFile(path, commit, time, machines, cases, tuple(claims.values()), tuple(failed), num_foreign, written)


def _case(path: Path, field: str, info: Mapping[str, Any]) -> CaseRounds:
    names = [_text(path, f"{field}.{name}", info.get(name)) for name in ("device", "experiment", "scheduler")]
    device, experiment, scheduler = names
    if device not in MACHINES:
        raise FileError(
            f"{path}: field '{field}.device' is {device!r}; expected one of {', '.join(MACHINES)}; {REMEDY}"
        )
    scale = require_number(path, f"{field}.scale", info.get("scale"))
    if scale is None or scale <= 0:
        raise FileError(f"{path}: field '{field}.scale' is {scale}; expected a factor above 0; {REMEDY}")
    rounds = info.get("rounds")
    if not isinstance(rounds, list) or not rounds or not all(isinstance(each, dict) for each in rounds):
        raise FileError(f"{path}: field '{field}.rounds' holds no round of {experiment}/{scheduler}; {REMEDY}")
    values = tuple(
        {name: _metric(path, f"{field}.rounds[{index}].{name}", each[name], name) for name in METRICS if name in each}
        for index, each in enumerate(rounds)
    )
    return CaseRounds(Key(device, case_id(experiment, scheduler)), scale, values)


def _metric(path: Path, field: str, value: object, name: str) -> float | None:
    number = require_number(path, field, value)
    if number is not None and (number < 0 or (number == 0 and name in POSITIVE)):
        raise FileError(f"{path}: field {field!r} is {number}; expected a number above 0; {REMEDY}")
    return number


def _text(path: Path, field: str, value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise FileError(f"{path}: field {field!r} is {value!r}; expected a name; {REMEDY}")
    return value


def _claims(path: Path, field: str, info: Mapping[str, Any]) -> list[ClaimOutcome]:
    claims = info.get("claims", [])
    if not isinstance(claims, list) or not all(isinstance(each, dict) for each in claims):
        raise FileError(f"{path}: field '{field}.claims' is no list of objects; {REMEDY}")
    return [
        ClaimOutcome(
            claim=_text(path, f"{field}.claims[{index}].claim", each.get("claim")),
            device=info["device"],
            section=str(each.get("section", "")),
            verdict=_text(path, f"{field}.claims[{index}].verdict", each.get("verdict")),
            reason=str(each.get("reason", "")),
            figure=require_number(path, f"{field}.claims[{index}].figure", each.get("figure")),
            figure_name=str(each.get("figure_name", "")),
            unit=str(each.get("unit", "")),
        )
        for index, each in enumerate(claims)
    ]


def _commit(data: Mapping[str, Any]) -> tuple[str, str]:
    info = data.get("commit_info")
    info = info if isinstance(info, dict) else {}
    commit = str(info.get("id") or "")
    if commit == "unversioned":  # pytest-benchmark's word
        commit = ""
    dirty = "-dirty" if commit and info.get("dirty") else ""
    return commit + dirty, str(info.get("time") or data.get("datetime") or "")


def _machines(path: Path, data: Mapping[str, Any], devices: set[str]) -> dict[str, Mapping[str, Any]]:
    info = data.get("machine_info")
    facts = info.get("overlap") if isinstance(info, dict) else None
    if not isinstance(facts, dict):
        raise FileError(f"{path}: field 'machine_info.overlap' is missing: the suite's plugin did not run; {REMEDY}")
    for device in sorted(devices):
        if not isinstance(facts.get(device), dict):
            raise FileError(f"{path}: field 'machine_info.overlap.{device}' is missing; {REMEDY}")
    cpu = info.get("cpu") if isinstance(info, dict) else None
    processor = {"processor": cpu.get("brand_raw")} if isinstance(cpu, dict) else {}
    return {device: processor | facts[device] for device in devices}


class Values(Enum):
    """Why a side has no samples of a metric."""

    MISSING = "not in the file"
    """The suite that wrote it did not know the metric."""
    UNDEFINED = "undefined"
    PARTLY = "undefined in some rounds"
    """Then there is no mean over rounds that could be compared."""


def samples(files: Sequence[ResultFile], key: Key, metric: str) -> list[list[float]] | Values:
    """Return a metric of a case, [files][rounds], or why there is none; files without the case are left out."""
    rounds = [file.cases[key].rounds for file in files if key in file.cases]
    values = [each[metric] for case in rounds for each in case if metric in each]
    if len(values) < sum(map(len, rounds)) or not rounds:
        return Values.MISSING
    undefined = values.count(None)
    if undefined:
        return Values.UNDEFINED if undefined == len(values) else Values.PARTLY
    return [[value for each in case if (value := each[metric]) is not None] for case in rounds]
