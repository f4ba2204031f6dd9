"""Shows metrics across commits as tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reports.regression.change import Samples
from reports.regression.change_points import DEFAULT_RULE, FEWEST_COMMITS
from reports.regression.history import Commit, History
from reports.regression.rules import FALSE_ALARM_RATE, KINDS, POWER, Better, Scale
from reports.regression.series import WORDS, Finding, Point, Step
from reports.regression.views import format_change, format_value
from reports.wording import counted

LARGEST_SHOWN = 1.0
"""Share up to which the smallest visible step is written out."""
FEWEST_IN_A_DRIFT = 3
"""So many steps of one direction in a row may be a drift."""
NUM_HASH_CHARACTERS = 8


def name_of(commit: Commit) -> str:
    """Return a commit's short name, safe to print."""
    name, dirty, _ = commit.name.partition("-dirty")
    return _printable(name[:NUM_HASH_CHARACTERS] + dirty) or "no commit"


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def title(finding: Finding) -> str:
    """Return which case a series is of."""
    series = finding.series
    scale = "" if series.time_scale == 1 else f", times × {series.time_scale:g}"
    return _printable(f"{series.key}{scale}")


def to_text(history: History) -> str:
    """Return a line for each series without a change point, then those with one in full, next to the prompt."""
    calm = [finding for finding in history.findings if not is_notable(finding)]
    table = [("case", "metric", "commits", "mean", "spread", "visible from", "result"), *map(_summary, calm)]
    lines = _columns(table, "llrrrrl") if calm else []
    for finding in history.findings:
        if is_notable(finding):
            lines += ["", *_full(finding, history.commits)]
    return "\n".join([*lines, "", *history.notes, *_method(history), _sentence(history)])


def is_notable(finding: Finding) -> bool:
    """Return whether a series is shown in full."""
    return bool(finding.steps or finding.inexact)


def _summary(finding: Finding) -> tuple[str, ...]:
    series = finding.series
    means = np.array([point.mean for point in series.points])
    result = "no change" if finding.is_telling else _mute(finding)
    if series.num_undefined:
        result += f"; undefined at {counted(series.num_undefined, 'commit')}"
    mean, spread = format_value(float(means.mean()), series.metric), _spread(means, finding)
    return title(finding), series.metric, str(len(means)), mean, spread, _visible(finding), result


def _mute(finding: Finding) -> str:
    is_short = finding.series.is_exact or len(finding.series.points) < 2 * FEWEST_COMMITS
    return "too short to tell" if is_short else "too short or too noisy to tell"


def _visible(finding: Finding) -> str:
    if finding.series.is_exact:
        return "any" if finding.is_telling else "–"
    if finding.smallest is None:
        return "–"
    if finding.series.scale is Scale.DIFFERENCE:
        return format_value(finding.smallest, finding.series.metric)
    if finding.smallest > LARGEST_SHOWN:
        return f"over {100 * LARGEST_SHOWN:.0f} %"
    return f"{100 * finding.smallest:.2f} %"


def _spread(values: Samples, finding: Finding) -> str:
    """Return the standard deviation of values, as a share of their mean where changes are ratios."""
    if len(values) < 2:
        return "–"
    spread = float(values.std(ddof=1)) if (values != values[0]).any() else 0.0
    if finding.series.scale is Scale.DIFFERENCE:
        return format_value(spread, finding.series.metric)
    return f"{100 * spread / float(values.mean()):.2f} %"


def _full(finding: Finding, commits: Sequence[Commit]) -> list[str]:
    series = finding.series
    steps = {step.index: step for step in finding.steps}
    table = [("commit", "time (UTC)", "mean", "spread", "n", "change", "")]
    for index, point in enumerate(series.points):
        commit, step = commits[point.position], steps.get(index)
        changed = "" if step is None else format_change(step.estimate, step.scale, series.metric)
        table.append(
            (
                name_of(commit),
                f"{commit.time:%Y-%m-%d %H:%M}",
                format_value(point.mean, series.metric),
                _spread(point.samples, finding),
                str(len(point.samples)),
                changed,
                _marker(finding, point, step),
            )
        )
    return [_heading(finding), *(f"  {line}" for line in _columns(table, "llrrrrl"))]


def _heading(finding: Finding) -> str:
    series = finding.series
    parts = [f"{title(finding)}: {series.metric}{direction(series.metric)}"]
    if not series.is_exact:
        parts.append(f"visible from {_visible(finding)}")
    if series.num_undefined:
        parts.append(f"undefined at {counted(series.num_undefined, 'commit')}")
    if not series.is_exact and finding.longest_run >= FEWEST_IN_A_DRIFT:
        parts.append(f"{finding.longest_run} steps of one direction in a row, perhaps a drift")
    return "; ".join(parts)


def direction(metric: str) -> str:
    """Return which values of a metric are better, to stand behind its name; nothing if neither."""
    better = KINDS[metric].better
    return "" if better is Better.NEITHER else f", {better.value} is better"


def _marker(finding: Finding, point: Point, step: Step | None) -> str:
    marks = [] if step is None else [f"<-- {step.word}"]
    if finding.series.is_exact and not point.is_constant:
        marks.append("no longer exact: its rounds differ")
    return "; ".join(marks)


def _method(history: History) -> list[str]:
    lines = ["Change: against the previous segment. n: processes where there are 3, else rounds; spread: of these."]
    if any(finding.series.is_exact for finding in history.findings):
        lines.append("Virtual time is exact: any change of any metric counts.")
    if any(not finding.series.is_exact for finding in history.findings):
        lines += [
            "Real time: seeded binary segmentation, Student's and Welch's t-test on means of processes; "
            f"{FALSE_ALARM_RATE:.0%} false alarms at most in flat series, divided among "
            f"{history.num_tested} series and all places looked at.",
            f"visible from: the smallest step in the middle of a series found with {POWER:.0%} probability; near its "
            "ends only a larger one. Fewer cases (--case), more commits, or several runs of each make it smaller.",
            f"too short or too noisy to tell: fewer than {2 * FEWEST_COMMITS} commits, or a step of the size that "
            "matters would not have shown "
            f"(perf/gate.toml; {DEFAULT_RULE.visible:.0%} for metrics that it does not judge).",
        ]
    return lines


def _sentence(history: History) -> str:
    findings = history.findings
    words = [step.word for finding in findings for step in finding.steps]
    counts = ", ".join(counted(words.count(word), word) for word in WORDS if word in words) or "no change point"
    mute = sum(not finding.is_telling and not finding.steps for finding in findings)
    blind = f"; {mute} too short or too noisy to tell" if mute else ""
    return f"{len(findings)} series over {counted(len(history.commits), 'commit')}: {counts}{blind}"


def _columns(table: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Return lines with aligned columns; a side is "l" or "r"."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(row, widths, sides, strict=True)
        ).rstrip()
        for row in table
    ]
