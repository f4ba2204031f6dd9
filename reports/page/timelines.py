"""Prepares traces of cases for the page: rows of bars, bubbles, marks and names, as columns of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

from impl.timeline import STAGES, Span, Timeline
from reports.bar_styles import (
    BAR_STYLES,
    BATCH_COLORS,
    BUBBLE,
    BUBBLE_LEGEND,
    BUBBLE_MEANING,
    INSTANTS,
    KIND_WORDS,
    LEGEND_COLOR,
    BarStyle,
    in_ms,
    text_color,
)
from reports.cases import REFERENCE, case_id
from reports.files import FileError
from reports.page.data import CaseRow
from reports.page.traces import Batch, Trace, read_trace
from reports.regression.results import Key, ResultFile
from reports.rows import Kind, Mark, Row, batch_names, bubbles, clusters, rows_of, spelled
from reports.trace import ARRIVAL, FIRST_TOKEN, trace_path

MAX_SPANS = 4_000
"""Of a case; more would make pages that open slowly, and bars that stutter when they are moved."""
MAX_MARKS = 4_000
"""Of a kind in a case."""
MAX_NAMED_CASES = 3
"""In a message."""
BUBBLE_STYLE = {
    "word": BUBBLE_LEGEND,
    "hover": f"<b>{BUBBLE}</b>: {BUBBLE_MEANING}",
    "legend": ["#fbe3df", "#c8756b"],
    "ink": "#8a2318",
}
"""The inside and the outline of its box, and the color of its length."""


def timelines(cases: Sequence[CaseRow], files: Sequence[ResultFile], folder: Path) -> dict[str, Any]:
    """Return the timelines of all cases that have a trace in a folder.

    Returns:
        "styles": of each stage; "bubble": its style; "colors": of batches, for marks; "strips": the kinds of marks
        above and below the rows; "cases": by index in `cases`, see `_timeline`, and with it "reference": the index of
        the case to draw beneath, or None.

    Raises:
        FileError: if the folder has no trace of any case, or one is damaged.
    """
    paths = _paths(cases, folder)
    traced = {cases[index].key: index for index in paths}
    found = {}
    for index, path in paths.items():
        case, trace = cases[index], read_trace(path)
        reference = traced.get(Key(case.key.device, case_id(case.experiment, REFERENCE)))
        shown = _timeline(trace, _rounds_ns(files, case.key))
        found[index] = {**shown, "reference": None if reference == index else reference}
    return {
        "styles": [_style(BAR_STYLES[stage]) for stage in STAGES],
        "bubble": BUBBLE_STYLE,
        "colors": BATCH_COLORS,
        "strips": {"above": ARRIVAL, "below": FIRST_TOKEN},
        "cases": found,
    }


def _paths(cases: Sequence[CaseRow], folder: Path) -> dict[int, Path]:
    """Return the traces that there are, by the index of their case."""
    command = f"pytest perf --trace-dir {folder}"
    try:
        present = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise FileError(f"--trace-dir {folder}: cannot be read: {error}; write traces with: {command}") from error
    paths = [trace_path(folder, case.experiment, case.scheduler, case.key.device) for case in cases]
    found = {index: path for index, path in enumerate(paths) if path.name in present}
    if not found:
        named = ", ".join(
            f"{case.key} ({path.name})" for case, path in zip(cases[:MAX_NAMED_CASES], paths, strict=False)
        )
        more = f" and {len(cases) - MAX_NAMED_CASES} more" if len(cases) > MAX_NAMED_CASES else ""
        raise FileError(
            f"--trace-dir {folder}: has no trace of any case of RESULT: {named}{more}; write them, "
            f"with -m cpu or -m gpu where RESULT had it, with: {command}"
        )
    return found


def _rounds_ns(files: Sequence[ResultFile], key: Key) -> set[float | None]:
    """Return how long each round of a case took."""
    return {each.get("total_ns") for file in files if key in file.cases for each in file.cases[key].rounds}


def _style(style: BarStyle) -> dict[str, Any]:
    """Return the colors of a stage for each color of a batch, and its hatch as plotly spells it."""
    faces = [style.face(color) for color in BATCH_COLORS]
    return {
        "word": style.word,
        "faces": faces,
        "edges": [style.edge(color) for color in BATCH_COLORS],
        "inks": [text_color(face) for face in faces],
        "legend": [style.face(LEGEND_COLOR), style.edge(LEGEND_COLOR)],
        "hatch": style.hatch[0] if style.hatch else "",
        "height": style.height,
        "named": style.has_label,
    }


def _timeline(trace: Trace, rounds_ns: set[float | None]) -> dict[str, Any]:
    """Return what is drawn of a run.

    Args:
        trace: of the run.
        rounds_ns: how long each round in the results took.

    Returns:
        Columns of whole numbers, of which times are nanoseconds, and stage, row, track and batch are indices.
    """
    kept = sorted(trace.spans, key=attrgetter("start_ns", "end_ns"))[:MAX_SPANS]
    # A copy or a wait without time did not happen.
    shown = [span for span in kept if span.end_ns > span.start_ns or span.stage in INSTANTS]
    timeline = Timeline(start_ns=0, spans=shown)
    rows = rows_of(timeline, seen_share=0)  # a reader can zoom in
    gaps = bubbles(timeline, seen_share=0)
    batches = {each: index for index, each in enumerate(dict.fromkeys(span.batch_id for span in kept))}
    marks = {name: [mark for mark in found if mark.batch_id in batches] for name, found in trace.marks.items()}
    return {
        "end": max(span.end_ns for span in kept) if kept else 0,
        "rows": [
            {
                "name": f"{KIND_WORDS[row.kind]} {row.name}",
                "isStream": row.kind is Kind.STREAM,
                "tracks": len(row.tracks),
            }
            for row in rows
        ],
        "spans": _spans(rows, batches),
        "batches": _batches(trace, list(batches)),
        "bubbles": {"start": [start for start, _ in gaps], "length": [end - start for start, end in gaps]},
        "marks": {name: _marks(found[:MAX_MARKS], batches) for name, found in marks.items()},
        "notes": [*_left_out(kept, trace.num_spans, marks), *_foreign(trace.total_ns, rounds_ns)],
    }


def _spans(rows: Sequence[Row], batches: Mapping[int, int]) -> dict[str, list[int]]:
    columns: dict[str, list[int]] = {name: [] for name in ("start", "length", "stage", "row", "track", "batch")}
    for row_index, row in enumerate(rows):
        for track_index, track in enumerate(row.tracks):
            for span in track:
                columns["start"].append(span.start_ns)
                columns["length"].append(span.end_ns - span.start_ns)
                columns["stage"].append(STAGES.index(span.stage))
                columns["row"].append(row_index)
                columns["track"].append(track_index)
                columns["batch"].append(batches[span.batch_id])
    return columns


def _batches(trace: Trace, ids: Sequence[int]) -> dict[str, list[Any]]:
    names = batch_names({each: batch.request_ids for each, batch in trace.batches.items()})
    found = [trace.batches[each] for each in ids]
    return {
        "id": list(ids),
        "size": [batch.size for batch in found],
        "tokens": [batch.num_tokens for batch in found],
        "requests": [_named(batch) for batch in found],
        "label": [names[each].short for each in ids],
    }


def _named(batch: Batch) -> str:
    more = batch.size - len(batch.request_ids)
    return spelled(batch.request_ids) + (f" and {more:,} more" if more else "")


def _marks(marks: Sequence[Mark], batches: Mapping[int, int]) -> dict[str, list[Any]]:
    """Return a mark for each time; its color is that of its first request's batch."""
    groups = clusters(marks, 0)
    return {
        "time": [group[0].time_ns for group in groups],
        "batch": [batches[group[0].batch_id] for group in groups],
        "requests": [spelled(mark.request_id for mark in group) for group in groups],
    }


def _left_out(kept: Sequence[Span], num_spans: int, marks: Mapping[str, Sequence[Mark]]) -> Iterator[str]:
    if len(kept) < num_spans:
        yield f"the first {len(kept):,} of {num_spans:,} spans are shown, up to {in_ms(kept[-1].start_ns)} ms"
    for name, found in marks.items():
        if len(found) > MAX_MARKS:
            yield f"the first {MAX_MARKS:,} of {len(found):,} {name}s are shown"


def _foreign(total_ns: int, rounds_ns: set[float | None]) -> Iterator[str]:
    """Say so if the traced run is none of the results' rounds."""
    if rounds_ns and None not in rounds_ns and total_ns not in rounds_ns:
        yield (
            f"the trace is of another run than the results: it took {total_ns / 1e6:,.3f} ms, as no round of "
            "theirs did; write both at once with: pytest perf --trace-dir DIR --benchmark-json FILE"
        )
