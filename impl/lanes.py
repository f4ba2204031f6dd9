"""Looks up what runs on a thread or an engine at a time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from operator import attrgetter

from impl.timeline import COPY, COPY_LANE, FORWARD, Span, Timeline


class Lane:
    """Stretches of one thread or engine that do not overlap, in order, for looking up what runs when."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self.spans = sorted([span for span in spans if span.end_ns > span.start_ns], key=attrgetter("start_ns"))
        self._starts = [span.start_ns for span in self.spans]
        self._ends = [span.end_ns for span in self.spans]

    def at(self, time_ns: int) -> Span | None:
        """Return what runs at a time."""
        index = bisect_right(self._starts, time_ns) - 1
        return self.spans[index] if index >= 0 and self._ends[index] > time_ns else None

    def covered_ns(self, start_ns: int, end_ns: int) -> int:
        """Return for how long in a stretch something runs."""
        first, last = bisect_left(self._ends, start_ns), bisect_right(self._starts, end_ns)
        return sum(max(0, min(s.end_ns, end_ns) - max(s.start_ns, start_ns)) for s in self.spans[first:last])

    def bounds(self, start_ns: int, end_ns: int) -> list[int]:
        """Return the times inside a stretch at which something begins or ends."""
        first, last = bisect_left(self._ends, start_ns), bisect_right(self._starts, end_ns)
        return [time for span in self.spans[first:last] for time in (span.start_ns, span.end_ns)]


def host_lanes(timeline: Timeline) -> Mapping[str, Lane]:
    """Return what each host thread does, by its name."""
    by_lane: dict[str, list[Span]] = defaultdict(list)
    for span in timeline.spans:
        if span.stage not in (FORWARD, COPY):
            by_lane[span.lane].append(span)
    return {lane: Lane(spans) for lane, spans in by_lane.items()}


def copies_in_the_way(timeline: Timeline) -> Lane:
    """Return when copies stand in a forward's way: only where they have no stream of their own."""
    return Lane(united(span for span in timeline.stage(COPY) if span.lane != COPY_LANE))


def united(spans: Iterable[Span]) -> list[Span]:
    """Return stretches in which at least one of the spans runs."""
    found: list[Span] = []
    for span in sorted(spans, key=attrgetter("start_ns")):
        if found and span.start_ns <= found[-1].end_ns:
            found[-1] = found[-1]._replace(end_ns=max(found[-1].end_ns, span.end_ns))
        else:
            found.append(span)
    return found
