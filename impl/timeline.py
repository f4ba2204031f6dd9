"""What happened when: the one place where times are recorded, and the only source of metrics.

A span is a stage of one batch on a lane (a host thread or a device stream). All times of a timeline are on
its runtime's clock, in nanoseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from impl.errors import RunFailed
from impl.ledger import Outcome


class Span(NamedTuple):
    """One stage of one batch on one lane, half-open: [start_ns, end_ns)."""

    lane: str
    stage: str
    batch_id: int
    start_ns: int
    end_ns: int


class Taken(NamedTuple):
    """A batch was formed; its requests left the waiting queue."""

    batch_id: int
    time_ns: int
    num_tokens: int
    request_ids: tuple[int, ...]
    empty_ns: int | None = None
    """When the scheduler last asked for a batch and there was none, since the batch before this one."""


class Delivery(NamedTuple):
    """An item's token reached its request (or was dropped) when its batch's post ended."""

    request_id: int
    position: int | None
    batch_id: int
    time_ns: int
    outcome: Outcome


class LockWait(NamedTuple):
    """A thread wanted to go on and could not: it waited for the GIL, or in real time for a core; half-open."""

    lane: str
    start_ns: int
    end_ns: int


COPY_LANE = "copy"
"""The stream of copies that have one of their own; others are on the lane of their forward."""
PRE, LAUNCH, FORWARD, COPY, SYNCHRONIZE, POST = "pre", "launch", "forward", "copy", "synchronize", "post"
STAGES = (PRE, LAUNCH, FORWARD, COPY, POST, SYNCHRONIZE)
"""All stages: the work on a batch in its order, then the wait for it."""


@dataclass(slots=True)
class Timeline:
    """Everything recorded in one run."""

    start_ns: int | None = None
    """When the arrivals began to count; filled by the first `Engine.next_batch`."""
    spans: list[Span] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    lock_waits: list[LockWait] = field(default_factory=list)
    call_sites: dict[tuple[str, str], list[tuple[int, str]]] = field(default_factory=dict)
    """Where the scheduler calls a stage, "file:line", by lane and stage: each place with the time from which on."""
    late_ns: int = 0
    """Longest time by which an arrival reached a waiting scheduler too late."""

    @property
    def started_ns(self) -> int:
        """When the arrivals began to count. Raises RunFailed if the scheduler never asked for a batch."""
        if self.start_ns is None:
            raise RunFailed("the scheduler never called engine.next_batch")
        return self.start_ns

    def by_batch(self) -> Mapping[int, Mapping[str, Span]]:
        """Return the spans of each batch by stage."""
        found: dict[int, dict[str, Span]] = defaultdict(dict)
        for span in self.spans:
            found[span.batch_id][span.stage] = span
        return found

    def first_taken(self) -> Mapping[int, Taken]:
        """Return for each request the first batch that it was taken for."""
        found: dict[int, Taken] = {}
        for taken in self.taken:
            for request_id in taken.request_ids:
                found.setdefault(request_id, taken)
        return found

    def call_site(self, span: Span) -> str:
        """Return where the scheduler called a host stage, as "file:line"."""
        places = self.call_sites[span.lane, span.stage]
        return next(place for since_ns, place in reversed(places) if since_ns <= span.start_ns)

    def stage(self, stage: str) -> list[Span]:
        """Return a stage's spans in order of start."""
        return sorted([span for span in self.spans if span.stage == stage], key=attrgetter("start_ns"))
