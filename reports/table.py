"""The result table of the README: the article, the virtual device and a GPU side by side, from the baselines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from reports.article import read_article
from reports.baselines import FOLDER, Baselines
from reports.cases import REFERENCE, case_id, split_case_id


def comparison(gpu_file: Path) -> pd.DataFrame:
    """Return one row for each case of the article and of either baseline, with its figures relative to `normal`.

    Raises:
        FileError: if a baseline is damaged.
    """
    article = read_article().cases
    virtual, gpu = Baselines.read(FOLDER / "virtual.json"), Baselines.read(gpu_file)
    rows = []
    for case in sorted({*gpu.cases, *virtual.cases, *article}):
        experiment, scheduler = split_case_id(case)
        if scheduler == REFERENCE:
            continue
        named = article.get(case, {})
        row: dict[str, Any] = {"experiment": experiment, "scheduler": scheduler}
        for source, cases in (("virtual", virtual.cases), ("gpu", gpu.cases)):
            own, normal = cases.get(case), cases.get(case_id(experiment, REFERENCE))
            for metric, key in (("throughput", "throughput_rps"), ("TTFT", "ttft_mean_ns")):
                row[f"{metric} {source}"] = _relative(own, normal, key)
            row[f"forwards {source}"] = None if own is None else own["num_forwards"]
        row |= {
            "throughput article": named.get("throughput_gain"),
            "TTFT article": named.get("ttft_change"),
            "forwards article": named.get("num_forwards"),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _relative(own: dict[str, float | None] | None, normal: dict[str, float | None] | None, key: str) -> float | None:
    if own is None or normal is None or own[key] is None or normal[key] is None:
        return None
    return own[key] / normal[key] - 1  # type: ignore[operator] # neither is None here


def to_markdown(frame: pd.DataFrame, experiments: list[str]) -> str:
    """Return rows of the given experiments as a Markdown table."""
    lines = [
        "| experiment | scheduler | throughput: article | virtual | GPU | TTFT: article | virtual | GPU | forwards |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in frame[frame["experiment"].isin(experiments)].to_dict("records"):
        cells = [row["experiment"], row["scheduler"]]
        for metric in ("throughput", "TTFT"):
            cells += [_percent(row[f"{metric} {source}"]) for source in ("article", "virtual", "gpu")]
        cells.append(" / ".join(_count(row[f"forwards {source}"]) for source in ("article", "virtual", "gpu")))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _percent(value: float | None) -> str:
    return "–" if value is None or pd.isna(value) else f"{100 * value:+.1f} %"


def _count(value: float | None) -> str:
    return "–" if value is None or pd.isna(value) else f"{value:.0f}"
