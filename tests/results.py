"""Result files as a run of the suite would leave them, small and made up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reports.measure import split_case_id
from reports.regression.results import METRICS

WHOLE = ("num_forwards", "num_surplus_tokens")
SPEED: Mapping[str, float] = {"normal": 1.0, "overlap": 1.3}
"""By scheduler; others are 1.1 times as fast as `normal`."""


def metrics(speed: float = 1.0, *, wobble: float = 0.0, **changed: float | None) -> dict[str, float | None]:
    """Return one round; a faster one has shorter times and more throughput."""
    factor = (1 + wobble) / speed
    found: dict[str, float | None] = dict.fromkeys(METRICS)
    found |= {name: 100e6 * factor for name in METRICS if name.endswith("_ns")}
    found |= {"throughput_rps": 10 / factor, "num_forwards": 5, "num_surplus_tokens": 0}
    found |= {"batch_size_mean": 1.0, "launch_lead": 0.5, "gpu_idle_share": 0.25, "itl_mean_ns": None}
    return found | changed


def claim(name: str, verdict: str = "HOLDS", **changed: Any) -> dict[str, Any]:
    """Return what a run says of a claim."""
    plain = {"section": "7", "reason": "", "figure": 0.3, "figure_name": "throughput", "unit": "%"}
    return {"claim": name, "verdict": verdict, **plain, **changed}


def entry(
    case: str,
    rounds: Sequence[Mapping[str, float | None]],
    *,
    device: str = "virtual",
    claims: Iterable[Mapping[str, Any]] = (),
    scale: float = 1.0,
) -> dict[str, Any]:
    """Return one benchmark entry."""
    experiment, scheduler = split_case_id(case)
    info = {"schema": 1, "experiment": experiment, "scheduler": scheduler, "device": device, "section": "7"}
    return {
        "name": f"test_case[{experiment}-{scheduler}-{device}]",
        "extra_info": info | {"scale": scale, "rounds": list(rounds), "claims": list(claims)},
    }


def case_entry(case: str, *, num_rounds: int = 1, shift: float = 0.0, **options: Any) -> dict[str, Any]:
    """Return an entry whose rounds differ by a little, the same ones each time; `shift` makes all of them slower."""
    speed = SPEED.get(split_case_id(case)[1], 1.1)
    rounds = [metrics(speed, wobble=shift + 0.001 * (index % 7)) for index in range(num_rounds)]
    return entry(case, rounds, **options)


def result_json(path: Path, entries: Iterable[Mapping[str, Any]], **fields: Any) -> Path:
    """Write a run's benchmark JSON; `fields` replace those of the whole file."""
    listed = list(entries)
    devices = {each["extra_info"]["device"] for each in listed}
    facts = {device: {"device": device} for device in devices}
    if "cuda" in facts:
        facts["cuda"] |= {"gpu": "NVIDIA H200", "driver": "580.1", "torch": "2.11", "power_limit_w": 700.0}  # type: ignore[dict-item]
    data = {
        "benchmarks": listed,
        "machine_info": {"overlap": facts},
        "commit_info": {"id": "0123456789abcdef", "time": "2026-11-30T01:02:03+00:00", "dirty": False},
        "overlap_failed": [],
    }
    path.write_text(json.dumps(data | fields), encoding="utf-8")
    return path
