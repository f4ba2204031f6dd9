"""Writes synthetic result files: what a run of the suite leaves, without the run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime(2026, 1, 1, tzinfo=UTC)
MACHINES: Mapping[str, Mapping[str, Any]] = {
    "virtual": {"device": "virtual"},
    "cpu": {"device": "cpu", "system": "Linux x86_64", "gil": True},
    "cuda": {"device": "cuda", "gpu": "NVIDIA H200", "driver": "580.1", "torch": "2.11", "gil": True},
}

Rounds = Sequence[Mapping[str, float | None]]


def hash_of(number: int) -> str:
    """Return a commit's hash, of which the first characters differ from other numbers'."""
    return f"{number * 2654435761 % 2**32:08x}".ljust(40, "0")


def day(number: float) -> str:
    """Return the time of a commit."""
    return (START + timedelta(days=number)).isoformat()


def write_result(
    path: Path,
    cases: Mapping[str, Rounds],
    *,
    commit: str = hash_of(0),
    time: str = day(0),
    written: str = day(400),
    device: str = "cuda",
    is_dirty: bool = False,
    scale: float = 1.0,
    failed: Sequence[str] = (),
    facts: Mapping[str, Any] | None = None,
) -> Path:
    """Write a result of one process, with the rounds of each case ("saturated/overlap")."""
    entries = []
    for case, rounds in cases.items():
        experiment, scheduler = case.split("/")
        info = {"schema": 1, "experiment": experiment, "scheduler": scheduler, "device": device, "scale": scale}
        entries.append({"extra_info": {**info, "rounds": [dict(each) for each in rounds], "claims": []}})
    data = {
        "benchmarks": entries,
        "commit_info": {"id": commit, "time": time, "dirty": is_dirty} if commit else {"id": "unversioned"},
        "datetime": written,
        "machine_info": {"overlap": {device: dict(MACHINES[device] if facts is None else facts)}},
        "overlap_failed": list(failed),
    }
    path.write_text(json.dumps(data), encoding="utf-8")
    return path
