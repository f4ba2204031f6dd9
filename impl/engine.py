"""What a scheduler sees: batches to take, stages to run, forwards to launch and wait for.

Every stage is recorded here, so schedulers hold no measuring code. The engine also keeps the books: which
request has which token, and that each ends exactly once.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable
from types import CodeType
from typing import Protocol, TypeVar

from impl.batching import Batching
from impl.core import Batch, Flight, Item
from impl.costs import Costs
from impl.device.protocol import Device
from impl.device.stream import Stream
from impl.errors import ProtocolError
from impl.ledger import Ledger, Outcome
from impl.ranges import Ranges
from impl.runtime.protocol import Queue, Runtime
from impl.timeline import COPY, COPY_LANE, FORWARD, LAUNCH, POST, PRE, SYNCHRONIZE, Delivery, Span, Taken, Timeline
from impl.workload import Workload

T = TypeVar("T")

MAX_EMPTY_POLLS = 100_000
"""Answers "nothing now" at one instant after which a scheduler counts as stuck."""


class Scheduler(Protocol):
    """A step order: takes batches from the engine until `next_batch` has none left, and returns."""

    def __call__(self, engine: Engine, /) -> None: ...


class Engine:
    """One run of one scheduler."""

    def __init__(
        self,
        runtime: Runtime,
        device: Device,
        workload: Workload,
        costs: Costs,
        batching: Batching,
        ranges: Ranges | None,
    ) -> None:
        self._runtime = runtime
        self._device = device
        self._costs = costs
        self._ranges = ranges
        self._policy = batching.start()
        self._arrivals = workload.requests
        self._num_arrived = 0
        self._num_batches = 0
        self._synchronized: list[Flight] = []
        self._sites: dict[tuple[str, str], tuple[CodeType, int]] = {}
        """Where each thread called each stage last."""
        self._waiters: dict[int, str] = {}
        """Which thread synchronizes which batch."""
        self._num_empty_polls = 0
        self._empty_ns: int | None = None
        """When `next_batch` last found nothing that can run."""
        self._names = {"thread scheduler", f"stream {COPY_LANE}"}
        """Of threads and streams: each is one lane of the timeline."""
        self._last_poll_ns: int | None = None
        # Results travel to the thread that schedules as messages, so the policy needs no lock.
        self._results: Queue[list[tuple[Item, bool]]] = runtime.queue("results and arrivals")
        self._ledger = Ledger(workload)
        self.now_ns = runtime.now_ns
        self.timeline = Timeline(lock_waits=runtime.lock_waits)

    @property
    def costs(self) -> Costs:
        """The modelled costs: for yardsticks that are told what a scheduler can only estimate."""
        return self._costs

    def queue(self, name: str) -> Queue[T]:
        """Make a queue between threads of this run."""
        return self._runtime.queue(name)

    def spawn(self, function: Callable[[], None], name: str) -> None:
        """Start a thread of this run. Raises ProtocolError if a thread or a stream has that name."""
        self._require_new("thread", name)
        self._runtime.spawn(function, name)

    def stream(self, name: str) -> Stream:
        """Create a device stream. Raises ProtocolError if a stream has that name: a run creates each once."""
        self._require_new("stream", name)
        return self._device.stream(name)

    def _require_new(self, kind: str, name: str) -> None:
        key = f"{kind} {name}"
        if key in self._names:
            raise ProtocolError(f"a second {kind} is called {name!r}; give each {kind} of a run a name of its own")
        self._names.add(key)

    def next_batch(self, *, wait: bool = True) -> Batch | None:
        """Take the next batch.

        Args:
            wait: block until there is one. Without it, None means that nothing can run now.

        Returns:
            A batch; with `wait`, None means that no request will ever need another forward.

        Arrivals count from the first call: by then the scheduler has made its streams and threads.
        """
        if self.timeline.start_ns is None:
            self.timeline.start_ns = self.now_ns()
        while True:
            self._receive()
            items = self._policy.schedule()
            if items:
                return self._take(items)
            if self._num_arrived == len(self._arrivals) and self._policy.is_drained:
                return None
            self._empty_ns = now_ns = self.now_ns()
            if not wait:
                self._count_empty_poll(now_ns)
                return None
            self._await_change()

    def _receive(self) -> None:
        while (seen := self._results.get(timeout_ns=0)) is not None:
            self._policy.results(seen)
        now_ns = self.now_ns() - self.timeline.started_ns
        while self._num_arrived < len(self._arrivals) and self._arrivals[self._num_arrived].arrival_ns <= now_ns:
            self._policy.add(self._arrivals[self._num_arrived])
            self._num_arrived += 1

    def _await_change(self) -> None:
        timeout_ns = due_ns = None
        if self._num_arrived < len(self._arrivals):
            due_ns = self.timeline.started_ns + self._arrivals[self._num_arrived].arrival_ns
            timeout_ns = max(0, due_ns - self.now_ns())
        seen = self._results.get(timeout_ns)
        if seen is not None:
            self._policy.results(seen)
        elif due_ns is not None:
            self.timeline.late_ns = max(self.timeline.late_ns, self.now_ns() - due_ns)

    def _take(self, items: list[Item]) -> Batch:
        num_tokens = sum([item.num_tokens for item in items])
        # A policy never mixes the two: a prompt, or a chunk of one, produces output 0 or none.
        batch = Batch(self._num_batches, items, num_tokens, is_prefill=items[0].position in (None, 0))
        self._num_batches += 1
        ids = tuple([item.request.id for item in items])
        self.timeline.taken.append(Taken(batch.id, self.now_ns(), num_tokens, ids, self._empty_ns))
        self._empty_ns = None
        return batch

    def _count_empty_poll(self, now_ns: int) -> None:
        """Find a scheduler that polls for ever in virtual time, where time stands still meanwhile."""
        self._num_empty_polls = self._num_empty_polls + 1 if now_ns == self._last_poll_ns else 0
        self._last_poll_ns = now_ns
        if self._num_empty_polls > MAX_EMPTY_POLLS:
            raise ProtocolError(
                f"the scheduler asked {MAX_EMPTY_POLLS} times for a batch without waiting, and no time passed; "
                "use next_batch(wait=True) when no forward is in flight"
            )

    def pre(self, batch: Batch, stream: Stream) -> None:
        """Prepare a batch on the host and upload its inputs on `stream`.

        Raises:
            ProtocolError: if the batch was prepared before.
        """
        if batch.upload is not None:
            raise ProtocolError(f"batch {batch.id} is prepared a second time; each batch is prepared once")
        start_ns = self._begin(PRE, batch)
        self._runtime.work(self._costs.host_work, self._costs.pre(batch))
        self._device.upload(batch, stream)
        self._end(PRE, batch, start_ns)

    def launch(self, batch: Batch, stream: Stream) -> Flight:
        """Enqueue a batch's forward on `stream` and the copy of its tokens to the host.

        Raises:
            ProtocolError: if the batch was not prepared, or if `stream` does not wait for its inputs.
        """
        if batch.is_launched:
            raise ProtocolError(f"batch {batch.id} is launched a second time; each batch is launched once")
        batch.is_launched = True
        costs = self._costs
        start_ns = self._begin(LAUNCH, batch)
        self._runtime.work(costs.host_work, costs.launch(batch))
        payload = self._device.launch(batch, stream, forward_ns=costs.forward(batch), copy_ns=costs.copy(batch))
        return Flight(batch, self._end(LAUNCH, batch, start_ns), payload, stream.name)

    def synchronize(self, flight: Flight) -> None:
        """Wait until a forward's tokens are on the host; its times are known from then on."""
        if flight.is_synchronized:
            return  # nothing to wait for, and a forward is recorded once
        me = self._runtime.thread_name()
        first = self._waiters.setdefault(flight.batch.id, me)  # atomic: of two threads one comes first
        if first != me:
            raise ProtocolError(f"threads {first!r} and {me!r} both synchronize batch {flight.batch.id}; let one do it")
        start_ns = self._begin(SYNCHRONIZE, flight.batch)
        self._device.wait(flight)
        self._end(SYNCHRONIZE, flight.batch, start_ns)
        self._synchronized.append(flight)

    def post(self, flight: Flight) -> None:
        """Process a forward's tokens on the host and deliver them.

        Raises:
            ProtocolError: before `synchronize`, a second time, or out of order.
        """
        batch = flight.batch
        if not flight.is_synchronized:
            raise ProtocolError(f"post of batch {batch.id} before its tokens are there; call engine.synchronize first")
        if flight.is_posted:
            raise ProtocolError(f"post of batch {batch.id} a second time; each flight is post-processed once")
        flight.is_posted = True
        start_ns = self._begin(POST, batch)
        self._runtime.work(self._costs.host_work, self._costs.post(batch))
        end_ns = self._end(POST, batch, start_ns)
        seen = []
        deliver, deliveries = self._ledger.deliver, self.timeline.deliveries
        for item, token in zip(batch.items, flight.tokens, strict=True):
            outcome = deliver(item, token)
            deliveries.append(Delivery(item.request.id, item.position, batch.id, end_ns, outcome))
            seen.append((item, outcome is Outcome.ENDED))
        self._results.put(seen)

    def _begin(self, stage: str, batch: Batch) -> int:
        if self._ranges is not None:
            self._ranges.push(stage, batch)
        return self.now_ns()

    def _end(self, stage: str, batch: Batch, start_ns: int) -> int:
        end_ns = self.now_ns()
        lane = self._runtime.thread_name()
        self.timeline.spans.append(Span(lane, stage, batch.id, start_ns, end_ns))
        caller = sys._getframe(2)  # of the method whose stage ends here, which has to call this one itself
        site = caller.f_code, caller.f_lasti
        if self._sites.get((lane, stage)) != site:  # the line is looked up only where the place changes
            self._sites[lane, stage] = site
            place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
            self.timeline.call_sites.setdefault((lane, stage), []).append((start_ns, place))
        if self._ranges is not None:
            self._ranges.pop()
        return end_ns

    def progress(self) -> int:
        """Return a number that grows as long as the run moves."""
        return len(self.timeline.spans) + len(self.timeline.taken)

    def unfinished(self) -> str:
        """Name the batches whose results never arrived, for the error of a run that got stuck."""
        posted = {delivery.batch_id for delivery in self.timeline.deliveries}
        missing = [taken for taken in self.timeline.taken if taken.batch_id not in posted]
        if not missing:
            return "every batch that was taken has been post-processed"
        named = ", ".join(f"batch {t.batch_id} (request {', '.join(map(str, t.request_ids[:5]))})" for t in missing[:5])
        return f"{len(missing)} of {len(self.timeline.taken)} batches were taken and not post-processed: {named}"

    def finish(self) -> list[list[int]]:
        """Record the forwards, check that the run is complete, and return the tokens of each request.

        Raises:
            ProtocolError: if a request never ended or resources were not given back.
        """
        self._record_forwards()
        self._ledger.require_all_ended()
        self._receive()
        if self._policy.num_held:
            raise ProtocolError(f"{self._policy.num_held} resource slots were never given back at the end of the run")
        return self._ledger.tokens

    def _record_forwards(self) -> None:
        """Read all forwards' times, now that it delays nobody."""
        spans = self.timeline.spans
        # Copies on one stream run one after the other, in the order in which it reaches them.
        copy_free_ns: dict[str, int] = defaultdict(int)
        timed = [(flight, flight.times()) for flight in self._synchronized]
        for flight, (start_ns, end_ns, copy_end_ns) in sorted(timed, key=lambda each: each[1].copy_end_ns):
            spans.append(Span(flight.stream_name, FORWARD, flight.batch.id, start_ns, end_ns))
            lane = COPY_LANE if self._device.has_copy_stream else flight.stream_name
            spans.append(
                Span(lane, COPY, flight.batch.id, min(copy_end_ns, max(end_ns, copy_free_ns[lane])), copy_end_ns)
            )
            copy_free_ns[lane] = copy_end_ns
