"""Writes a run as a trace that Perfetto and chrome://tracing open: threads, streams, marks, arrows, counters.

Source: Trace Event Format (Google, 2016), the JSON form that ui.perfetto.dev reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from operator import attrgetter
from pathlib import Path
from typing import Any

from impl.experiment import Result
from impl.timeline import COPY, FORWARD, LAUNCH, POST, Span, Timeline
from reports.files import require_writable, safe_name, write_chunks
from reports.rows import arrivals, first_tokens

HOST, GPU = 1, 2
"""Processes of the trace."""
ARRIVALS, FIRST_TOKENS = 1, 2
"""Tracks of the host, above those of its threads."""
ARRIVAL, FIRST_TOKEN = "arrival", "first token"
"""Categories of the instants on them."""
LAST_LINE = "]}"
MAX_SPANS = 500_000
"""Arrows and batch sizes add at most two events a span, marks and the queue at most four a request: with them it is
about two million, beyond which a viewer does not open a trace any more.
"""
MAX_NAMED_REQUESTS = 20
"""Of a batch, in a slice's arguments."""

Event = dict[str, Any]
Tracks = Mapping[tuple[int, str], int]
"""A thread number for each lane, by process and name."""


def trace_path(folder: Path, experiment: str, scheduler: str, device: str) -> Path:
    """Return where the trace of a case lies."""
    return folder / f"{safe_name(f'{experiment}-{scheduler}-{device}')}.json"


def write_trace(result: Result, path: Path) -> str | None:
    """Write one run, an event a line: of a very long one the earliest spans, and what happened to their batches.

    Returns:
        What was left out, in words; None if nothing was.

    Raises:
        FileError: if the folder cannot be written.
    """
    require_writable(path.parent)
    spans = sorted(result.timeline.spans, key=attrgetter("start_ns"))
    kept = spans[:MAX_SPANS]
    write_chunks(path, _lines(result, kept, num_spans=len(spans)))
    if len(kept) == len(spans):
        return None
    return (
        f"{path.stem}: {len(kept):,} of {len(spans):,} spans are in the trace, the earliest ones, and of marks and "
        "counters what belongs to them; a viewer takes no more"
    )


def _lines(result: Result, kept: Sequence[Span], *, num_spans: int) -> Iterator[bytes]:
    """Yield the file line by line: as one text, a long trace would take a gigabyte."""
    about = {"total_ns": result.metrics.summary.total_ns, "num_spans": num_spans}
    yield f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(about)}, "traceEvents": [\n'.encode()
    separator = ""
    for event in _events(result, kept):
        yield f"{separator}{json.dumps(event, ensure_ascii=True)}".encode()
        separator = ",\n"
    yield f"\n{LAST_LINE}\n".encode()


def _events(result: Result, spans: Sequence[Span]) -> Iterator[Event]:
    """Yield everything about some of a run's spans, which are in order of their start."""
    start_ns = result.timeline.started_ns
    tracks = _tracks(spans)
    yield from _names(tracks)
    yield from _slices(spans, tracks, result.timeline)
    yield from _marks(result, {span.batch_id for span in spans})
    yield from _arrows(spans, tracks, start_ns)
    yield from _queue(result, until_ns=spans[-1].start_ns - start_ns)
    yield from _batch_sizes(spans, result.timeline)


def _process(span: Span) -> int:
    return GPU if span.stage in (FORWARD, COPY) else HOST


def _tracks(spans: Iterable[Span]) -> Tracks:
    lanes = dict.fromkeys((_process(span), span.lane) for span in spans)
    return {lane: index for index, lane in enumerate(lanes, start=FIRST_TOKENS + 1)}


def _begin(span: Span, tracks: Tracks, start_ns: int) -> Event:
    """Return on which track a span begins, and when."""
    process = _process(span)
    return {"pid": process, "tid": tracks[process, span.lane], "ts": (span.start_ns - start_ns) / 1e3}


def _names(tracks: Tracks) -> Iterator[Event]:
    for process, name in ((HOST, "host threads"), (GPU, "GPU streams")):
        yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
    marks = {(HOST, "arrivals"): ARRIVALS, (HOST, "first tokens"): FIRST_TOKENS}
    for (process, lane), thread in {**marks, **tracks}.items():
        yield {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": lane}}


def _slices(spans: Iterable[Span], tracks: Tracks, timeline: Timeline) -> Iterator[Event]:
    taken = {each.batch_id: each for each in timeline.taken}
    for span in spans:
        batch = taken[span.batch_id]
        yield {
            "ph": "X",
            "name": f"{span.stage} {span.batch_id}",
            "cat": span.stage,
            **_begin(span, tracks, timeline.started_ns),
            "dur": (span.end_ns - span.start_ns) / 1e3,
            "args": {
                "batch": span.batch_id,
                "size": len(batch.request_ids),
                "tokens": batch.num_tokens,
                "requests": list(batch.request_ids[:MAX_NAMED_REQUESTS]),
            },
        }


def _marks(result: Result, batches: Set[int]) -> Iterator[Event]:
    """Mark when the requests of some batches arrived, and when their first tokens were delivered."""
    timeline = result.timeline
    for category, track, marks in (
        (ARRIVAL, ARRIVALS, arrivals(timeline, result.scenario.workload)),
        (FIRST_TOKEN, FIRST_TOKENS, first_tokens(timeline)),
    ):
        for mark in marks:
            if mark.batch_id not in batches:
                continue
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


def _arrows(spans: Iterable[Span], tracks: Tracks, start_ns: int) -> Iterator[Event]:
    """Draw an arrow from each launch to its forward, and from each forward to its post."""
    of = {(span.stage, span.batch_id): span for span in spans}
    for stage, batch_id in of:
        if stage != FORWARD:
            continue
        for number, (begin, end, name) in enumerate(((LAUNCH, FORWARD, "launch"), (FORWARD, POST, "result"))):
            source, target = of.get((begin, batch_id)), of.get((end, batch_id))
            if source is None or target is None:
                continue
            for phase, span in (("s", source), ("f", target)):
                yield {
                    "ph": phase,
                    **({"bp": "e"} if phase == "f" else {}),
                    "id": 2 * batch_id + number,
                    "name": name,
                    "cat": "flow",
                    **_begin(span, tracks, start_ns),
                }


def _queue(result: Result, *, until_ns: int) -> Iterator[Event]:
    """Count requests that have arrived and are not taken, up to a time from the start of the run."""
    start_ns = result.timeline.started_ns
    changes = [(request.arrival_ns, 1) for request in result.scenario.workload.requests]
    changes += [(taken.time_ns - start_ns, -1) for taken in result.timeline.first_taken().values()]
    length = 0
    for time_ns, change in sorted(changes, key=lambda each: (each[0], -each[1])):
        if time_ns > until_ns:
            break
        length += change
        yield {"ph": "C", "name": "queue", "pid": HOST, "tid": 0, "ts": time_ns / 1e3, "args": {"requests": length}}


def _batch_sizes(spans: Iterable[Span], timeline: Timeline) -> Iterator[Event]:
    """Count the requests of the running batch."""
    sizes = {taken.batch_id: len(taken.request_ids) for taken in timeline.taken}
    for span in spans:
        if span.stage == FORWARD:
            for time_ns, size in ((span.start_ns, sizes[span.batch_id]), (span.end_ns, 0)):
                ts = (time_ns - timeline.started_ns) / 1e3
                yield {"ph": "C", "name": "batch size", "pid": GPU, "tid": 0, "ts": ts, "args": {"requests": size}}
