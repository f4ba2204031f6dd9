"""Shows a comparison: as a table for the terminal, as Markdown for a pull request, as JSON for machines."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import asdict
from itertools import accumulate
from typing import Any

from reports.regression.change import Verdict
from reports.regression.comparison import Comparison, Row
from reports.regression.results import ResultFile
from reports.regression.rules import FALSE_ALARM_RATE, KINDS, POWER, Scale
from reports.wording import counted

SCHEMA = 1
"""Version of the JSON."""
ORDER = (
    Verdict.REGRESSION,
    Verdict.UNDECIDED,
    Verdict.CHANGED,
    Verdict.IMPROVEMENT,
    Verdict.OK,
    Verdict.SHOWN,
)
"""Worst first."""
HEADINGS = ("metric", "base", "head", "change", "interval", "visible from", "n", "verdict", "reason")
RIGHT = {"base", "head", "change", "interval", "visible from", "n"}
LARGEST_COMMENT = 60_000
"""Characters; GitHub refuses comments of more than 65,536."""
UNITS = {"process": "processes", "round": "rounds"}
MAX_LISTED = 20
LARGEST_SHOWN = 11.0
"""Ratio up to which numbers are written out; ends of intervals from two or three samples can be astronomical."""


def format_value(value: float, metric: str) -> str:
    """Return a metric's value with its unit."""
    kind = KINDS[metric]
    if kind.unit == "ns":
        return f"{value / 1e6:,.3f} ms"
    if kind.unit == "share":
        return f"{value:.3f}"
    return f"{value:,.6g} {kind.unit}".rstrip()


def format_change(value: float | None, scale: Scale, metric: str) -> str:
    """Return a change: a ratio in percent, a difference in the metric's unit."""
    if value is None:
        return "–"
    if scale is Scale.DIFFERENCE:
        return _visible(("+" if value >= 0 else "") + format_value(value, metric), value)
    if value > LARGEST_SHOWN:
        return f"over +{100 * (LARGEST_SHOWN - 1):.0f} %"
    percent = 100 * (value - 1)
    return _visible(f"{percent:+.2f}", percent) + " %"


def _visible(text: str, value: float) -> str:
    """Return a number's text, or its first digit where the text shows only zeros."""
    return text if value == 0 or set(text) & set("123456789") else f"{value:+.1g}"


def format_smallest(row: Row) -> str:
    """Return the smallest regression that a row could have shown."""
    change = row.change
    if change.is_exact:
        return "any"
    if change.smallest is None:
        return "–"
    if change.scale is Scale.RATIO:
        return f"{100 * change.smallest:.2f} %" if change.smallest <= LARGEST_SHOWN else "–"
    return format_value(change.smallest, row.metric)


def _side(value: float, row: Row) -> str:
    return f"{value:.4f} × normal" if row.is_ratio_to_reference else format_value(value, row.metric)


def cells(row: Row) -> tuple[str, ...]:
    """Return a row's cells, in the order of `HEADINGS`."""
    change = row.change
    ends = [format_change(end, change.scale, row.metric) for end in (change.low, change.high)]
    return (
        row.metric,
        *(_side(value, row) for value in (change.base, change.head)),
        format_change(change.estimate, change.scale, row.metric),
        "exact" if change.is_exact else f"[{ends[0]}, {ends[1]}]",
        format_smallest(row),
        str(change.num_base) if change.num_base == change.num_head else f"{change.num_base}+{change.num_head}",
        row.verdict.value,
        row.judgement.reason,
    )


def method_lines(found: Comparison) -> list[str]:
    """Return in sentences how the rows were judged and how sure they are."""
    method = found.method
    sides = [f"{name}: {_commits(files)}, {counted(len(files), 'run')}" for name, files in _named(found)]
    if found.judged and all(row.change.is_exact for row in found.judged):
        return [*sides, "Virtual time is exact: any change of any metric counts."]
    looks = "" if method.num_looks == 1 else f" × {method.num_looks} looks"
    samples = "pairs of processes" if method.is_paired else f"unpaired {UNITS[method.unit]}"
    test = "paired t" if method.is_paired else "Welch"
    lines = [
        *sides,
        f"{samples}; {test} intervals, each of which misses the truth with probability {2 * method.alpha:.1e}: "
        f"{FALSE_ALARM_RATE:.0%} false alarms at most in all, divided among {method.num_tests} measured rows{looks}.",
        f"visible from: the smallest regression found with {POWER:.0%} probability in data as noisy as this.",
    ]
    if method.is_ratio_to_reference:
        lines.append("Unlike machines: only ratios to normal of the same run are compared.")
    if not method.is_paired:
        lines.append(
            "The weaker test: the rates hold only if the machine was in the same state in all runs. "
            "`python -m reports gate` compares pairs."
        )
    if method.luck:
        lines.append(
            f"Too few runs to see how processes differ: assumed is a standard deviation of {method.luck:.2%} between "
            "the two sides (process_luck in perf/gate.toml)."
        )
    return lines


def _named(found: Comparison) -> tuple[tuple[str, Sequence[ResultFile]], ...]:
    return ("base", found.base), ("head", found.head)


def _commits(files: Sequence[ResultFile]) -> str:
    commits = dict.fromkeys(file.commit[:12] + ("-dirty" if file.commit.endswith("-dirty") else "") for file in files)
    return ", ".join(commit or "no commit" for commit in commits)


def changed_cases(found: Comparison) -> list[tuple[str, list[str]]]:
    """Return the lists of cases that exist on one side only, cannot be compared or failed, with their titles."""
    lists = [
        ("only in base (renamed or removed?)", found.only_base),
        ("only in head (renamed or new?)", found.only_head),
        ("not comparable", found.incomparable),
        ("failed in head", found.failed),
    ]
    return [(title, cases) for title, cases in lists if cases]


def by_severity(rows: Sequence[Row]) -> list[Row]:
    """Return rows with the worst verdicts first, otherwise in their order."""
    return sorted(rows, key=lambda row: ORDER.index(row.verdict))


def to_text(found: Comparison, *, allow_changed_cases: bool) -> str:
    """Return the table of every row; the worst ones come last, next to the prompt.

    Exact values that are equal have nothing to show and are only counted.
    """
    told = [row for row in found.rows if not (row.change.is_exact and row.change.base == row.change.head)]
    table = [(str(row.key), *cells(row)) for row in reversed(by_severity(told))]
    lines = _columns([("case", *HEADINGS), *table]) if table else []
    if len(told) < len(found.rows):
        lines.append(f"{len(found.rows) - len(told):,} rows are exact and equal")
    for title, cases in changed_cases(found):
        lines.append(f"{title}:")
        lines += [f"  {case}" for case in cases]
    result = found.exit_code(allow_changed_cases=allow_changed_cases)
    lines += [*found.notes, *method_lines(found), found.sentence(allow_changed_cases=allow_changed_cases)]
    return "\n".join([*lines, f"{result.name} (exit code {int(result)})"])


def _columns(table: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with aligned columns; rich takes seconds for thousands of rows."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    is_right = [False, *(heading in RIGHT for heading in HEADINGS)]
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, is_right, strict=True)
        ).rstrip()
        for row in table
    ]


def to_markdown(found: Comparison, *, allow_changed_cases: bool) -> str:
    """Return the comment for a pull request: what matters first, every row folded below."""
    result = found.exit_code(allow_changed_cases=allow_changed_cases)
    lines = [
        f"### Overlap scheduling: {result.name}",
        "",
        _escaped(found.sentence(allow_changed_cases=allow_changed_cases)),
        "",
    ]
    notable = [row for row in by_severity(found.judged) if row.verdict is not Verdict.OK]
    if notable:
        lines += [*_markdown_table(notable[:MAX_LISTED]), ""]
        if len(notable) > MAX_LISTED:
            lines += [f"…and {len(notable) - MAX_LISTED} more below.", ""]
    for title, cases in changed_cases(found):
        lines += [f"**{title}**", "", *(f"- {_escaped(case)}" for case in cases[:MAX_LISTED])]
        lines += [f"- …and {len(cases) - MAX_LISTED} more"] if len(cases) > MAX_LISTED else []
        lines.append("")
    lines += [*(f"{_escaped(line)}  " for line in [*found.notes, *method_lines(found)]), ""]
    table = _markdown_table(by_severity(found.rows))
    room = LARGEST_COMMENT - sum(len(line) + 1 for line in lines)
    fitting = list(accumulate(len(line) + 1 for line in table))
    num_shown = sum(end <= room for end in fitting)
    lines += [f"<details><summary>All {len(found.rows)} rows</summary>", "", *table[:num_shown]]
    if num_shown < len(table):
        lines += ["", f"…and {len(table) - num_shown} more, for which a comment has no room: see --json."]
    return "\n".join([*lines, "", "</details>"]) + "\n"


def _escaped(text: str) -> str:
    """Return text in which neither HTML nor Markdown of a name takes effect."""
    return html.escape(text, quote=False).translate({ord(mark): f"\\{mark}" for mark in "|`*_[]"})


def _markdown_table(rows: Sequence[Row]) -> list[str]:
    lines = [f"| case | {' | '.join(HEADINGS)} |"]
    lines.append("| --- | " + " | ".join("---:" if heading in RIGHT else "---" for heading in HEADINGS) + " |")
    for row in rows:
        found = [str(row.key), *cells(row)]
        lines.append("| " + " | ".join(_escaped(cell) for cell in found) + " |")
    return lines


def to_json(found: Comparison, *, allow_changed_cases: bool) -> dict[str, Any]:
    """Return everything as data; changes are ratios head / base or differences, times in nanoseconds."""
    result = found.exit_code(allow_changed_cases=allow_changed_cases)
    return {
        "schema": SCHEMA,
        "result": result.name,
        "exit_code": int(result),
        "sentence": found.sentence(allow_changed_cases=allow_changed_cases),
        "false_alarm_rate": FALSE_ALARM_RATE,
        "power": POWER,
        "method": asdict(found.method) | {"alpha": found.method.alpha},
        "sides": {
            name: [{"file": str(file.path), "commit": file.commit, "time": file.time} for file in files]
            for name, files in _named(found)
        },
        "only_in_base": found.only_base,
        "only_in_head": found.only_head,
        "incomparable": found.incomparable,
        "failed_in_head": found.failed,
        "notes": found.notes,
        "rows": [
            {
                "device": row.key.device,
                "case": row.key.case,
                "metric": row.metric,
                "unit": KINDS[row.metric].unit,
                "better": KINDS[row.metric].better.value,
                "verdict": row.verdict.value,
                "reason": row.judgement.reason,
                **asdict(row.change),
                "scale": row.change.scale.value,
            }
            for row in found.rows
        ],
    }
