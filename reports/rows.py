"""What is shown of a timeline, as data: rows of spans, bubbles, names of batches, marks at times."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from impl.lanes import united
from impl.timeline import COPY, COPY_LANE, FORWARD, Span, Timeline
from impl.workload import Workload


class Kind(IntEnum):
    """What a row stands for, from top to bottom."""

    THREAD = 0
    STREAM = 1
    COPIES = 2


THREAD_ORDER = ("scheduler", "worker", "launch", "post")
"""In the order in which a batch meets them; others follow in the order in which they began."""
SEEN_SHARE = 0.001
"""Copies and bubbles that take a smaller share of the run cannot be seen."""


@dataclass(frozen=True, slots=True)
class Row:
    """One host thread or device stream; spans that overlap stand in several tracks below each other."""

    kind: Kind
    name: str
    tracks: tuple[tuple[Span, ...], ...]

    @property
    def spans(self) -> list[Span]:
        """All spans."""
        return [span for track in self.tracks for span in track]


class BatchName(NamedTuple):
    """What may stand in a batch's bars, by how much room there is."""

    full: str
    short: str
    number: str


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened to a request; the time is on the run's clock."""

    time_ns: int
    request_id: int
    batch_id: int


def rows_of(timeline: Timeline, *, seen_share: float = SEEN_SHARE) -> list[Row]:
    """Return the rows of a timeline from top to bottom.

    Args:
        timeline: of a run or of a part of one.
        seen_share: of the run; a stream whose copies all take less has no row.
    """
    lanes: dict[tuple[Kind, str], list[Span]] = defaultdict(list)
    for span in timeline.spans:
        lanes[_row_of(span)].append(span)
    seen_ns = _seen_ns(timeline, seen_share)
    found = []
    for (kind, name), spans in lanes.items():
        if kind is Kind.COPIES and max(span.end_ns - span.start_ns for span in spans) < seen_ns:
            continue
        found.append(Row(kind, name, _tracks(spans)))
    return sorted(found, key=_place)


def _seen_ns(timeline: Timeline, share: float) -> float:
    end_ns = max((span.end_ns for span in timeline.spans), default=timeline.started_ns)
    return max(1.0, share * (end_ns - timeline.started_ns))


def _row_of(span: Span) -> tuple[Kind, str]:
    if span.stage == COPY:  # on the forwards' stream too: in their row it would cover the bubbles
        return Kind.COPIES, COPY_LANE
    return Kind.STREAM if span.stage == FORWARD else Kind.THREAD, span.lane


def _place(row: Row) -> tuple[int, int, int, str]:
    known = THREAD_ORDER.index(row.name) if row.name in THREAD_ORDER else len(THREAD_ORDER)
    return row.kind, known, min(span.start_ns for span in row.spans), row.name


def _tracks(spans: Iterable[Span]) -> tuple[tuple[Span, ...], ...]:
    tracks: list[list[Span]] = []
    for span in sorted(spans, key=attrgetter("start_ns", "end_ns")):
        free = next((track for track in tracks if track[-1].end_ns <= span.start_ns), None)
        if free is None:
            tracks.append(free := [])
        free.append(span)
    return tuple(map(tuple, tracks))


def bubbles(timeline: Timeline, *, seen_share: float = SEEN_SHARE) -> list[tuple[int, int]]:
    """Return start and end of every stretch between the first and the last forward in which no forward runs.

    A real GPU takes a microsecond from one forward to the next: those that take less than `seen_share` of the run are
    left out.
    """
    seen_ns = _seen_ns(timeline, seen_share)
    gaps = [(before.end_ns, after.start_ns) for before, after in pairwise(united(timeline.stage(FORWARD)))]
    return [gap for gap in gaps if gap[1] - gap[0] >= seen_ns]


def batch_names(batches: Mapping[int, Sequence[int]]) -> Mapping[int, BatchName]:
    """Return what may stand in the bars of each batch: "B" is a batch, "r" a request.

    Where every batch is one request and every request one batch, its request says all.

    Args:
        batches: the requests of each, by its id.
    """
    uses = Counter(request for requests in batches.values() for request in requests)
    is_plain = all(len(requests) == 1 for requests in batches.values()) and set(uses.values()) <= {1}
    found = {}
    for batch_id, requests in batches.items():
        named = spelled(requests)
        batch = f"B{batch_id}"
        full, short = (named, named) if is_plain else (f"{batch}: {named}", batch)
        found[batch_id] = BatchName(full, short, short[1:])
    return found


def spelled(request_ids: Iterable[int]) -> str:
    """Write requests as ranges: "r0", "r2–r5, r9"."""
    ranges: list[list[int]] = []
    for request in sorted(set(request_ids)):
        if ranges and request == ranges[-1][1] + 1:
            ranges[-1][1] = request
        else:
            ranges.append([request, request])
    return ", ".join(f"r{first}" if first == last else f"r{first}–r{last}" for first, last in ranges)


def arrivals(timeline: Timeline, workload: Workload) -> list[Mark]:
    """Return when each request arrived, with the first batch that took it."""
    first = timeline.first_taken()
    return [
        Mark(timeline.started_ns + r.arrival_ns, r.id, first[r.id].batch_id) for r in workload.requests if r.id in first
    ]


def first_tokens(timeline: Timeline) -> list[Mark]:
    """Return when each request's first token was delivered."""
    return [Mark(d.time_ns, d.request_id, d.batch_id) for d in timeline.deliveries if d.position == 0]


def clusters(marks: Sequence[Mark], distance_ns: float) -> list[list[Mark]]:
    """Group marks, in order of time, that are closer than a distance to the first of their group."""
    found: list[list[Mark]] = []
    for mark in sorted(marks, key=attrgetter("time_ns", "request_id")):
        if found and mark.time_ns - found[-1][0].time_ns <= distance_ns:
            found[-1].append(mark)
        else:
            found.append([mark])
    return found
