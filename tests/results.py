"""Results as a run of the suite leaves them, small and made up."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from impl.diagnosis import Finding
from impl.metrics import Summary
from impl.workload import NS_PER_S
from reports.cases import split_case_id
from reports.replay import extra_info

CASES = ("saturated/normal", "saturated/overlap", "starved/normal", "starved/overlap")
FACTS: Mapping[str, Mapping[str, Any]] = {
    "virtual": {"device": "virtual"},
    "cpu": {"device": "cpu", "system": "Linux x86_64", "gil": True},
    "cuda": {
        "device": "cuda",
        "gpu": "NVIDIA H200",
        "driver": "580.159.04",
        "torch": "2.11.0",
        "power_limit_w": 700.0,
        "gil": True,
    },
}
"""Of the machine, by device."""
SUMMARY = Summary(
    total_ns=400_000_000,
    throughput_rps=25.0,
    ttft_mean_ns=200_000_000.0,
    ttft_p50_ns=200_000_000,
    ttft_p90_ns=None,
    ttft_p99_ns=None,
    ttft_max_ns=390_000_000,
    queue_wait_mean_ns=100_000_000.0,
    service_ttft_mean_ns=100_000_000.0,
    itl_mean_ns=None,
    itl_max_ns=None,
    num_forwards=10,
    batch_size_mean=1.0,
    launch_lead=0.9,
    gpu_idle_share=0.1,
    num_surplus_tokens=0,
)

Rounds = Sequence[Mapping[str, float | None]]
"""The metrics of each round; times in nanoseconds."""


def metrics(slower: float = 0.0, **changed: float | None) -> dict[str, Any]:
    """Return the metrics of a round in which everything takes longer by a share; times in nanoseconds."""
    found = asdict(SUMMARY)
    for name, value in found.items():
        if name.endswith("_ns") and value is not None:
            found[name] = round(value * (1 + slower)) if isinstance(value, int) else value * (1 + slower)
    found["throughput_rps"] /= 1 + slower
    return asdict(replace(SUMMARY, **(found | changed)))


def noisy(num_rounds: int, *, noise: float, slower: float = 0.0, seed: int = 0) -> list[dict[str, Any]]:
    """Return rounds whose times vary by a relative standard deviation, around those of a slower round."""
    random = np.random.default_rng(seed)
    return [metrics((1 + slower) * float(np.exp(random.normal(0, noise))) - 1) for _ in range(num_rounds)]


def claim(name: str, verdict: str = "HOLDS", **changed: Any) -> dict[str, Any]:
    """Return what a run says of a claim."""
    plain = {"section": "7", "reason": "", "figure": 0.3, "figure_name": "throughput", "unit": "%"}
    return {"claim": name, "verdict": verdict, **plain, **changed}


def entry(
    case: str,
    rounds: Rounds,
    *,
    device: str = "cuda",
    scale: float | None = None,
    claims: Iterable[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return the benchmark entry of a case ("saturated/overlap"); its times are scaled by 0.1 unless virtual."""
    experiment, scheduler = split_case_id(case)
    if scale is None:
        scale = 1.0 if device == "virtual" else 0.1
    name = f"test_case[{experiment}-{scheduler}-{device}]"
    info = extra_info(
        experiment=experiment,
        scheduler=scheduler,
        device=device,
        section="7",
        scale=scale,
        rounds=rounds,
        gpu=[],
        left_out=[],
        overlap=[Finding.ON.name] * len(rounds),
    )
    times_s = [(each["total_ns"] or 0) / NS_PER_S for each in rounds]
    return {
        "name": name,
        "fullname": f"perf/test_cases.py::{name}",
        "extra_info": info | {"claims": list(claims)},
        "stats": {"data": times_s, "mean": fmean(times_s), "rounds": len(times_s)},
    }


def document(
    entries: Iterable[Mapping[str, Any]],
    *,
    facts: Mapping[str, Any] | None = None,
    commit: str = "a" * 40,
    time: str = "2026-11-30T00:00:00+00:00",
    written: str = "2026-11-30T01:00:00+00:00",
    is_dirty: bool = False,
    failed: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a run's benchmark JSON.

    Args:
        entries: of its cases.
        facts: of the machine, where they differ from FACTS.
        commit: its hash; empty outside version control.
        time: of the commit; ISO 8601.
        written: when the run was written; ISO 8601.
        is_dirty: whether files were changed.
        failed: tests that failed.
    """
    listed = list(entries)
    devices = sorted({each["extra_info"]["device"] for each in listed})
    return {
        "machine_info": {"overlap": {device: {**FACTS[device], **(facts or {})} for device in devices}},
        "commit_info": {"id": commit, "time": time, "dirty": is_dirty} if commit else {"id": "unversioned"},
        "benchmarks": listed,
        "datetime": written,
        "version": "5.3.1",
        "overlap_failed": list(failed),
    }


def write_entries(path: Path, entries: Iterable[Mapping[str, Any]], **options: Any) -> Path:
    """Write the benchmark JSON of a run; `options` are those of `document`."""
    path.write_text(json.dumps(document(entries, **options)), encoding="utf-8")
    return path


def write_run(
    path: Path,
    cases: Mapping[str, Rounds] | None = None,
    *,
    device: str = "cuda",
    scale: float | None = None,
    claims: Sequence[Mapping[str, Any]] = (),
    **options: Any,
) -> Path:
    """Write the benchmark JSON of a run of one device; by default each of CASES has three equal rounds.

    The options of `entry` hold for every case; the others are those of `document`.
    """
    found = {case: [metrics()] * 3 for case in CASES} if cases is None else cases
    entries = [entry(case, rounds, device=device, scale=scale, claims=claims) for case, rounds in found.items()]
    return write_entries(path, entries, **options)
