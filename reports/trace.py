"""Writes a run as a trace that Perfetto and chrome://tracing open: threads, streams, marks, arrows, counters.

Source: Trace Event Format (Google, 2016), the JSON form that ui.perfetto.dev reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from impl.experiment import Result
from impl.timeline import COPY, FORWARD, LAUNCH, POST, Span, Timeline
from reports.files import require_writable, safe_name, write_text
from reports.rows import arrivals, first_tokens

HOST, GPU = 1, 2
"""Processes of the trace."""
ARRIVALS, FIRST_TOKENS = 1, 2
"""Tracks of the host, above those of its threads."""
ARRIVAL, FIRST_TOKEN = "arrival", "first token"
"""Categories of the instants on them."""
LAST_LINE = "]}"
MAX_EVENTS = 2_000_000
"""Beyond this a viewer does not open a trace any more, and writing it would take gigabytes."""
MAX_NAMED_REQUESTS = 20
"""Of a batch, in a slice's arguments."""

Event = dict[str, Any]


def trace_path(folder: Path, experiment: str, scheduler: str, device: str) -> Path:
    """Return where the trace of a case lies."""
    return folder / f"{safe_name(f'{experiment}-{scheduler}-{device}')}.json"


def write_trace(result: Result, path: Path) -> str | None:
    """Write one run, an event a line.

    Returns:
        What was left out, in words; None if nothing was.

    Raises:
        FileError: if the folder cannot be written.
    """
    require_writable(path.parent)
    spans = sorted(result.timeline.spans, key=attrgetter("start_ns"))
    num_events = len(spans) + 4 * len(result.timeline.taken) + 4 * len(result.scenario.workload.requests)
    kept = spans if num_events <= MAX_EVENTS else spans[: MAX_EVENTS // 4]
    events = chain(
        _names(kept), _slices(kept, result), _marks(result), _arrows(kept, result.timeline), _counters(kept, result)
    )
    lines = ",\n".join(json.dumps(event, ensure_ascii=True) for event in events)
    about = {"total_ns": result.metrics.summary.total_ns, "num_spans": len(spans)}
    head = f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about)}, "traceEvents": ['
    write_text(path, f"{head}\n{lines}\n{LAST_LINE}\n")
    if len(kept) == len(spans):
        return None
    shares = f"{len(kept):,} of {len(spans):,} spans"
    return f"{path.stem}: {shares} are in the trace, the earliest ones; a viewer takes no more"


def _is_on_gpu(span: Span) -> bool:
    return span.stage in (FORWARD, COPY)


def _tracks(spans: Iterable[Span]) -> dict[tuple[int, str], int]:
    """Return a thread number for each lane, by process."""
    lanes = dict.fromkeys((GPU if _is_on_gpu(span) else HOST, span.lane) for span in spans)
    return {lane: index for index, lane in enumerate(lanes, start=FIRST_TOKENS + 1)}


def _names(spans: Iterable[Span]) -> Iterator[Event]:
    for process, name in ((HOST, "host threads"), (GPU, "GPU streams")):
        yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
    marks = {(HOST, "arrivals"): ARRIVALS, (HOST, "first tokens"): FIRST_TOKENS}
    for (process, lane), thread in (marks | _tracks(spans)).items():
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": lane}}


def _slices(spans: Iterable[Span], result: Result) -> Iterator[Event]:
    spans = list(spans)
    tracks = _tracks(spans)
    taken = {each.batch_id: each for each in result.timeline.taken}
    start_ns = result.timeline.started_ns
    for span in spans:
        process = GPU if _is_on_gpu(span) else HOST
        batch = taken[span.batch_id]
        yield {
            "ph": "X",
            "name": f"{span.stage} {span.batch_id}",
            "cat": span.stage,
            "pid": process,
            "tid": tracks[process, span.lane],
            "ts": (span.start_ns - start_ns) / 1e3,
            "dur": (span.end_ns - span.start_ns) / 1e3,
            "args": {
                "batch": span.batch_id,
                "size": len(batch.request_ids),
                "tokens": batch.num_tokens,
                "requests": list(batch.request_ids[:MAX_NAMED_REQUESTS]),
            },
        }


def _marks(result: Result) -> Iterator[Event]:
    """Mark when requests arrived, and when their first tokens were delivered."""
    timeline = result.timeline
    for category, track, marks in (
        (ARRIVAL, ARRIVALS, arrivals(timeline, result.scenario.workload)),
        (FIRST_TOKEN, FIRST_TOKENS, first_tokens(timeline)),
    ):
        for mark in marks:
            yield {
                "ph": "i",
                "s": "t",
                "name": f"{category} {mark.request_id}",
                "cat": category,
                "pid": HOST,
                "tid": track,
                "ts": (mark.time_ns - timeline.started_ns) / 1e3,
                "args": {"request": mark.request_id, "batch": mark.batch_id},
            }


def _arrows(spans: Iterable[Span], timeline: Timeline) -> Iterator[Event]:
    """Draw an arrow from each launch to its forward, and from each forward to its post."""
    spans = list(spans)
    tracks = _tracks(spans)
    of = {(span.stage, span.batch_id): span for span in spans}
    for (stage, batch_id), forward in of.items():
        if stage != FORWARD:
            continue
        for number, (begin, end, name) in enumerate(((LAUNCH, FORWARD, "launch"), (FORWARD, POST, "result"))):
            source, target = of.get((begin, batch_id)), of.get((end, batch_id))
            if source is None or target is None:
                continue
            for phase, span in (("s", source), ("f", target)):
                process = GPU if _is_on_gpu(span) else HOST
                yield {
                    "ph": phase,
                    **({"bp": "e"} if phase == "f" else {}),
                    "id": 2 * forward.batch_id + number,
                    "name": name,
                    "cat": "flow",
                    "pid": process,
                    "tid": tracks[process, span.lane],
                    "ts": (span.start_ns - timeline.started_ns) / 1e3,
                }


def _counters(spans: Iterable[Span], result: Result) -> Iterator[Event]:
    """Count requests that have arrived and are not taken, and the size of the running batch."""
    start_ns = result.timeline.started_ns
    first_taken: dict[int, int] = {}
    for taken in result.timeline.taken:
        for request in taken.request_ids:
            first_taken.setdefault(request, taken.time_ns - start_ns)
    changes = [(request.arrival_ns, 1) for request in result.scenario.workload.requests]
    changes += [(time_ns, -1) for time_ns in first_taken.values()]
    length = 0
    for time_ns, change in sorted(changes, key=lambda each: (each[0], -each[1])):
        length += change
        yield {"ph": "C", "name": "queue", "pid": HOST, "tid": 0, "ts": time_ns / 1e3, "args": {"requests": length}}
    sizes = {taken.batch_id: len(taken.request_ids) for taken in result.timeline.taken}
    for span in spans:
        if span.stage == FORWARD:
            for time_ns, size in ((span.start_ns, sizes[span.batch_id]), (span.end_ns, 0)):
                ts = (time_ns - start_ns) / 1e3
                yield {"ph": "C", "name": "batch size", "pid": GPU, "tid": 0, "ts": ts, "args": {"requests": size}}
