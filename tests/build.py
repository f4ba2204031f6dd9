"""Small scenarios, batches and runs for tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from impl.batching import Batching, Single
from impl.core import Batch, Item, Request
from impl.costs import Costs, WorkKind, cost_ms
from impl.device.protocol import DeviceSettings
from impl.engine import Engine
from impl.experiment import Result, Scenario, run
from impl.ledger import Outcome
from impl.machines import Machine, VirtualMachine
from impl.runtime.threads import ThreadRuntime
from impl.timeline import PRE, Delivery, LockWait, Span, Taken, Timeline
from impl.workload import Workload, burst

T = TypeVar("T")

MS = 1_000_000
START_NS = 5_000_000
"""Of runs written by hand: their clock does not begin at zero."""


def stages(
    pre: float = 1, forward: float = 5, post: float = 1, *, launch: float = 0, host_work: WorkKind = WorkKind.SLEEP
) -> Costs:
    """Return constant costs in milliseconds."""
    return Costs(
        pre=cost_ms(pre), launch=cost_ms(launch), forward=cost_ms(forward), post=cost_ms(post), host_work=host_work
    )


def scenario(
    workload: Workload | None = None,
    batching: Batching | None = None,
    costs: Costs | None = None,
    settings: DeviceSettings | None = None,
) -> Scenario:
    """Return a scenario; by default three requests at once, one a forward, of 1 + 5 + 1 ms."""
    return Scenario(
        "small", workload or burst(3), batching or Single(), costs or stages(), settings or DeviceSettings()
    )


def attempt(
    scheduler: Callable[[Engine], None], served: Scenario | None = None, machine: Machine | None = None
) -> Result:
    """Run a scheduler, on the virtual device unless told otherwise."""
    return run(scheduler, served or scenario(), machine or VirtualMachine())


def play(main: Callable[[ThreadRuntime], None], *, stall_s: float = 30) -> None:
    """Run `main` in real time, as the thread "scheduler"."""
    runtime = ThreadRuntime()
    runtime.run(lambda: main(runtime), progress=lambda: 0, stall_s=stall_s)


def batch(batch_id: int = 0, *, size: int = 1, num_tokens: int | None = None, is_prefill: bool = True) -> Batch:
    """Return a batch of `size` new requests."""
    items = [Item(Request(index, 0), 1, 0) for index in range(size)]
    return Batch(batch_id, items, size if num_tokens is None else num_tokens, is_prefill)


def by_hand(
    rows: Iterable[tuple[str, str, int, int, int]],
    *,
    arrivals: Sequence[int] = (0,) * 100,
    requests: Mapping[int, tuple[int, ...]] | None = None,
    first: Mapping[int, int] | None = None,
    taken: Mapping[int, int] | None = None,
    empty: Mapping[int, int] | None = None,
    locks: Iterable[tuple[str, int, int]] = (),
    unit_ns: int = 1,
) -> tuple[Timeline, Workload]:
    """Make a run from rows of lane, stage, batch, start and end; all times count from its start.

    Args:
        rows: its spans.
        arrivals: of request 0, 1, 2, …
        requests: of a batch, if not the one of its number.
        first: the batch that brings a request its first token, if not its last one.
        taken: when a batch was taken, if not when its pre begins.
        empty: when the scheduler asked in vain before a batch.
        locks: lane, start and end of waits for the GIL.
        unit_ns: of all these times.
    """

    def at(time: int) -> int:
        return START_NS + time * unit_ns

    timeline = Timeline(start_ns=START_NS)
    for lane, stage, batch_id, start, end in rows:
        timeline.spans.append(Span(lane, stage, batch_id, at(start), at(end)))
        timeline.call_sites[lane, stage] = [(0, f"{lane}.py:{stage}")]
    timeline.lock_waits += [LockWait(lane, at(start), at(end)) for lane, start, end in locks]
    requests, first, taken, empty = requests or {}, first or {}, taken or {}, empty or {}
    last: dict[int, int] = {}
    for span in sorted(timeline.stage(PRE), key=lambda each: each.batch_id):
        id_ = span.batch_id
        taken_ns = at(taken[id_]) if id_ in taken else span.start_ns
        empty_ns = at(empty[id_]) if id_ in empty else None
        ids = requests.get(id_, (id_,))
        timeline.taken.append(Taken(id_, taken_ns, len(ids), ids, empty_ns))
        last |= dict.fromkeys(ids, id_)
    for batch in timeline.taken:
        for request_id in batch.request_ids:
            first_id = first.get(request_id, last[request_id])
            position = None if batch.batch_id < first_id else batch.batch_id - first_id
            outcome = Outcome.CHUNK if position is None else Outcome.DELIVERED
            timeline.deliveries.append(Delivery(request_id, position, batch.batch_id, batch.time_ns, outcome))
    return timeline, Workload(tuple(Request(id_, time * unit_ns) for id_, time in enumerate(arrivals)))


def totals(*stretches: tuple[int, int, T]) -> dict[T, int]:
    """Add up stretches of start, end and what they are, each of which begins where the one before it ends."""
    assert all(before[1] == after[0] for before, after in pairwise(stretches))
    found: dict[T, int] = defaultdict(int)
    for start, end, what in stretches:
        found[what] += end - start
    return {what: time for what, time in found.items() if time}
