"""Builds the page: one HTML file with styles, scripts, plotly.js and all data in it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.article import read_article
from reports.baselines import FOLDER as BASELINES
from reports.baselines import Baselines
from reports.cases import REFERENCE
from reports.files import FileError
from reports.page.charts import overview, scheduler_colors, sweep_figures, sweeps
from reports.page.data import case_rows, claim_rows, require_one_scale, rounds_for_charts, verdict_counts
from reports.page.timelines import timelines
from reports.regression.comparison import Comparison
from reports.regression.results import METRICS, Key, ResultFile
from reports.regression.rules import KINDS
from reports.regression.views import (
    HEADINGS,
    ORDER,
    RIGHT,
    by_severity,
    cells,
    changed_cases,
    format_value,
    method_lines,
)
from reports.summary import format_figure, sentence

if TYPE_CHECKING:
    from markupsafe import Markup

FOLDER = Path(__file__).resolve().parent
EXTRA = "pip install -e '.[pictures]'"
SCRIPTS = ("common.js", "timelines.js", "page.js")
"""One script, in this order: each uses what stands before it, and the last one starts everything."""
FACTS = {
    "gpu": "GPU",
    "driver": "driver",
    "torch": "torch",
    "cuda": "CUDA",
    "sm_clock_mhz": "SM clock, MHz",
    "sm_clock_max_mhz": "SM clock at most, MHz",
    "memory_clock_mhz": "memory clock, MHz",
    "power_limit_w": "power limit, W",
    "python": "Python",
    "gil": "GIL",
    "system": "system",
}
"""Facts of a device, in the order of the page."""


def render(
    head: Sequence[ResultFile], base: Sequence[ResultFile], found: Comparison | None, traces: Path | None = None
) -> str:
    """Return the page of one or several runs of a commit, and of their comparison with a base.

    Args:
        head: the runs.
        base: runs of the base; none without a comparison.
        found: the comparison.
        traces: a folder with traces of head's cases, for timelines.

    Raises:
        FileError: if a library of the extra is missing, runs differ in scale, or a baseline or a trace is damaged.
    """
    script, environment = _libraries()
    for side in (head, base):
        require_one_scale(side)
    article, virtual = read_article(), Baselines.read(BASELINES / "virtual.json")
    cases = case_rows(head, article, virtual)
    claims = claim_rows(head, article.claims)
    families = [(sweep, sweep_figures(sweep, cases)) for sweep in sweeps(cases)]
    data = {
        "cases": rounds_for_charts(head, base),
        "metrics": [
            {"name": name, "title": metric_title(name), "is_time": KINDS[name].unit == "ns"} for name in METRICS
        ],
        "reference": REFERENCE,
        "colors": scheduler_colors(cases),
        "overview": overview(cases),
        "sweeps": [figure for _, figures in families for figure in figures],
        "timelines": None if traces is None else timelines(cases, head, traces),
    }
    text: str = environment.get_template("template.html").render(
        plotly=script,
        style=_read("style.css"),
        script="".join(map(_read, SCRIPTS)),
        data=embed(data),
        runs=head,
        facts=_facts(head),
        failed=list(dict.fromkeys(test for file in head for test in file.failed)),
        claims=claims,
        counts=verdict_counts(claims),
        cases=cases,
        sweeps=[sweep for sweep, _ in families],
        has_timelines=traces is not None,
        comparison=None if found is None else _comparison(found, {case.key: i for i, case in enumerate(cases)}),
    )
    # A lone surrogate, which JSON can hold, has no UTF-8.
    return text.encode(errors="replace").decode()


def _libraries() -> tuple[str, Any]:
    """Return plotly.js and a template environment; imported here, so that other commands need neither.

    Raises:
        FileError: naming the library that is missing.
    """
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError as error:
        library = (error.name or "a library").partition(".")[0]
        raise FileError(f"the page needs {library}, which is not installed; install it with: {EXTRA}") from error
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "figure": format_figure,
        "sentence": sentence,
        "kind": verdict_kind,
        "value": format_bare,
        "breakable": breakable,
    }
    return get_plotlyjs(), environment


def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def embed(data: Mapping[str, Any]) -> str:
    """Return JSON that cannot end the script element it stands in, nor open a comment there."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def metric_title(name: str) -> str:
    """Return a metric's name for reading, with its unit."""
    words = name.removesuffix("_ns").removesuffix("_rps").removeprefix("num_").replace("_", " ")
    for word in ("ttft", "itl", "gpu"):
        words = words.replace(word, word.upper())
    unit = {"ns": "ms"}.get(KINDS[name].unit, KINDS[name].unit)
    return f"{words} ({unit})" if unit and not words.endswith(unit) else words


def verdict_kind(verdict: str) -> str:
    """Return the style of a verdict: good, bad, open, better or none."""
    kinds = {
        "good": ("HOLDS", "OK"),
        "bad": ("FAILS", "REGRESSION"),
        "open": ("UNDECIDED", "CHANGED"),
        "better": ("IMPROVEMENT",),
    }
    return next((kind for kind, words in kinds.items() if verdict in words), "none")


def breakable(case: str) -> Markup:
    """Return a case's name so that its lines break between words."""
    from markupsafe import Markup

    return Markup("").join(Markup("{}<wbr>").format(word) for word in re.split("(?<=[/_])", case))


def format_fact(value: object) -> str:
    """Return a fact about a machine, a dash for none."""
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def format_bare(value: float | None, metric: str) -> str:
    """Return a metric's value without its unit, which the column's head names; a dash for none."""
    return "–" if value is None else format_value(value, metric).split(" ")[0]


def _facts(files: Sequence[ResultFile]) -> list[tuple[str, dict[str, list[str]]]]:
    """Return for each device its facts by title, each with the different values of the runs."""
    found = []
    for device in dict.fromkeys(device for file in files for device in file.machines):
        machines = [file.machines[device] for file in files if device in file.machines]
        known = {
            title: list(dict.fromkeys(format_fact(facts.get(name)) for facts in machines))
            for name, title in FACTS.items()
            if device == "cuda" or any(name in facts for facts in machines)
        }
        found.append((device, known))
    return sorted(found)


def _comparison(found: Comparison, indices: Mapping[Key, int]) -> dict[str, Any]:
    """Return what the template shows of a comparison; the cells are those of the terminal's table."""
    return {
        "sentence": found.sentence(allow_changed_cases=False),
        "lines": [*found.notes, *method_lines(found)],
        "changed": changed_cases(found),
        "headings": [(heading, heading in RIGHT) for heading in HEADINGS],
        "rows": [
            {
                "index": indices[row.key],
                "case": row.key.case,
                "device": row.key.device,
                "verdict": row.verdict.value,
                "cells": [(cell, name, name in RIGHT) for cell, name in zip(cells(row), HEADINGS, strict=True)],
            }
            for row in by_severity(found.rows)
        ],
        "counts": {verdict.value: found.counts[verdict] for verdict in ORDER if found.counts[verdict]},
    }
