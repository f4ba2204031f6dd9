"""Writes benchmark JSON as a run of the suite leaves it, with chosen values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from impl.metrics import Summary

H200 = {"gpu": "NVIDIA H200", "driver": "580.159.04", "torch": "2.11.0", "power_limit_w": 700.0, "gil": True}
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
CASES = ("saturated/normal", "saturated/overlap", "starved/normal", "starved/overlap")

Rounds = Sequence[Mapping[str, Any]]


def metrics(**changed: Any) -> dict[str, Any]:
    """Return the metrics of one round."""
    return {name: getattr(replace(SUMMARY, **changed), name) for name in Summary.__dataclass_fields__}


def slower(by: float) -> dict[str, Any]:
    """Return the metrics of a round in which everything takes longer by a share."""
    return metrics(
        throughput_rps=25.0 / (1 + by), ttft_mean_ns=200_000_000.0 * (1 + by), total_ns=round(400_000_000 * (1 + by))
    )


def noisy(num_rounds: int, *, noise: float, by: float = 0.0, seed: int = 0) -> list[dict[str, Any]]:
    """Return rounds whose times vary by a relative standard deviation."""
    random = np.random.default_rng(seed)
    return [slower((1 + by) * float(np.exp(random.normal(0, noise))) - 1) for _ in range(num_rounds)]


def document(
    cases: Mapping[str, Rounds],
    *,
    device: str = "cuda",
    facts: Mapping[str, Any] = H200,
    commit: str = "a" * 40,
    scale: float = 0.1,
    claims: Sequence[Mapping[str, Any]] = (),
    failed: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the JSON of one run."""
    benchmarks = []
    for case, rounds in cases.items():
        experiment, _, scheduler = case.partition("/")
        info = {
            "schema": 1,
            "experiment": experiment,
            "scheduler": scheduler,
            "device": device,
            "section": "7",
            "scale": scale,
            "rounds": list(rounds),
            "claims": list(claims),
        }
        times_s = [each["total_ns"] / 1e9 for each in rounds]
        stats = {"data": times_s, "mean": sum(times_s) / len(times_s), "rounds": len(times_s)} if times_s else {}
        name = f"test_case[{experiment}-{scheduler}-{device}]"
        fullname = f"perf/test_cases.py::{name}"
        benchmarks.append({"name": name, "fullname": fullname, "extra_info": info, "stats": stats})
    return {
        "machine_info": {"overlap": {device: {"device": device, **({} if device == "virtual" else facts)}}},
        "commit_info": {"id": commit, "time": "2026-11-30T00:00:00+00:00", "dirty": False},
        "benchmarks": benchmarks,
        "datetime": "2026-11-30T01:00:00+00:00",
        "version": "5.3.1",
        "overlap_failed": list(failed),
    }


def write_run(path: Path, cases: Mapping[str, Rounds] | None = None, **options: Any) -> Path:
    """Write the JSON of one run; by default every case has three equal rounds."""
    found = cases if cases is not None else {case: [metrics()] * 3 for case in CASES}
    path.write_text(json.dumps(document(found, **options)))
    return path
