"""Who goes into the next batch. Plain data in, plain data out: no clock, no device, no threads.

A policy is owned by the one thread that calls `Engine.next_batch`; results reach it as messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from impl.checks import require_whole
from impl.core import Item, Request
from impl.errors import ProtocolError, SettingError
from impl.workload import Workload

MAX_UNSEEN_TOKENS = 1
"""Tokens of a request that the host may not have seen when its next decode is scheduled.

One is what a two-deep pipeline needs; more would only add surplus forwards after a stop token.
"""


class Policy(Protocol):
    """The state of one run's batching."""

    def add(self, request: Request) -> None:
        """Take a request that has arrived."""

    def schedule(self) -> list[Item]:
        """Return the items of the next batch; an empty list if nothing can run now."""

    def results(self, seen: Iterable[tuple[Item, bool]]) -> None:
        """Learn that forwards were post-processed: the items, and whether the item's request has ended."""

    @property
    def is_drained(self) -> bool:
        """Whether no request that was added can ever need another forward."""

    @property
    def num_held(self) -> int:
        """Resource slots not given back yet; 0 at the end of a run."""


class Batching(Protocol):
    """A batching rule; `start` makes the state for one run."""

    def check(self, workload: Workload) -> None:
        """Raise SettingError if this rule cannot serve the workload."""

    def start(self) -> Policy:
        """Make the state for one run."""


@dataclass(frozen=True, slots=True)
class Dynamic:
    """All waiting requests up to `max_batch_size` go into one forward, which ends them (article, section 11)."""

    max_batch_size: int

    def __post_init__(self) -> None:
        require_whole("max_batch_size", self.max_batch_size, at_least=1, unit="requests")

    def check(self, workload: Workload) -> None:
        for request in workload.requests:
            if request.max_output_tokens != 1:
                raise SettingError(
                    f"request {request.id} may have {request.max_output_tokens} output tokens; allowed here: 1, "
                    "because this batching runs one forward a request; use Continuous for more"
                )

    def start(self) -> Policy:
        return _OneForward(self.max_batch_size)


def Single() -> Dynamic:  # noqa: N802 - named like the rules beside it
    """One request a forward (article, sections 4 to 10)."""
    return Dynamic(max_batch_size=1)


class _OneForward:
    def __init__(self, max_batch_size: int) -> None:
        self._max_batch_size = max_batch_size
        self._waiting: deque[Request] = deque()
        self.num_held = 0

    def add(self, request: Request) -> None:
        self._waiting.append(request)

    def schedule(self) -> list[Item]:
        size = min(len(self._waiting), self._max_batch_size)
        self.num_held += size
        take = self._waiting.popleft
        return [Item(request := take(), request.prompt_tokens, 0) for _ in range(size)]

    def results(self, seen: Iterable[tuple[Item, bool]]) -> None:
        self.num_held -= sum(1 for _ in seen)

    @property
    def is_drained(self) -> bool:
        return not self._waiting


@dataclass(frozen=True, slots=True)
class Continuous:
    """Prefill first, else one decode step of all running requests.

    A prefill batch holds at most `max_prefill_tokens`. With `chunked`, a longer prompt is cut into chunks of
    that size; without, it runs alone in one forward.
    """

    max_running: int
    max_prefill_tokens: int
    chunked: bool = False

    def __post_init__(self) -> None:
        require_whole("max_running", self.max_running, at_least=1, unit="requests")
        require_whole("max_prefill_tokens", self.max_prefill_tokens, at_least=1, unit="tokens")

    def check(self, workload: Workload) -> None:
        """Every valid workload can be served."""

    def start(self) -> Policy:
        return _Continuous(self)


@dataclass(slots=True)
class _Progress:
    request: Request
    num_prompt_scheduled: int = 0
    num_scheduled: int = 0
    num_seen: int = 0
    num_in_flight: int = 0
    is_ended: bool = False

    @property
    def may_decode(self) -> bool:
        has_more = not self.is_ended and self.num_scheduled < self.request.max_output_tokens
        return has_more and self.num_scheduled - self.num_seen <= MAX_UNSEEN_TOKENS


class _Continuous:
    def __init__(self, rule: Continuous) -> None:
        self._rule = rule
        self._waiting: deque[_Progress] = deque()
        self._admitted: dict[int, _Progress] = {}
        """Requests that hold a slot, in order of admission; a slot is given back exactly once, by deletion."""

    def add(self, request: Request) -> None:
        self._waiting.append(_Progress(request))

    def schedule(self) -> list[Item]:
        return self._prefill() or self._decode()

    def _prefill(self) -> list[Item]:
        items: list[Item] = []
        budget = self._rule.max_prefill_tokens
        while self._waiting and budget > 0:
            progress = self._waiting[0]
            request = progress.request
            if request.id not in self._admitted and len(self._admitted) >= self._rule.max_running:
                break
            num_tokens = request.prompt_tokens - progress.num_prompt_scheduled
            if self._rule.chunked:
                num_tokens = min(num_tokens, budget)
            elif items and num_tokens > budget:
                break
            self._admitted[request.id] = progress
            budget -= num_tokens
            progress.num_prompt_scheduled += num_tokens
            progress.num_in_flight += 1
            if progress.num_prompt_scheduled < request.prompt_tokens:
                items.append(Item(request, num_tokens, None))
                break
            self._waiting.popleft()
            progress.num_scheduled = 1
            items.append(Item(request, num_tokens, 0))
        return items

    def _decode(self) -> list[Item]:
        items: list[Item] = []
        for progress in self._admitted.values():
            if progress.num_scheduled and progress.may_decode:
                items.append(Item(progress.request, 1, progress.num_scheduled))
                progress.num_scheduled += 1
                progress.num_in_flight += 1
        return items

    def results(self, seen: Iterable[tuple[Item, bool]]) -> None:
        for item, is_ended in seen:
            progress = self._admitted.get(item.request.id)
            if progress is None:
                raise ProtocolError(
                    f"a result for request {item.request.id} (output {item.position}) arrived after its "
                    "resources were given back; each result may be reported once"
                )
            progress.num_in_flight -= 1
            if item.position is not None:
                progress.num_seen += 1
            progress.is_ended = progress.is_ended or is_ended
            # A surplus forward after a stop token still uses the slot: give it back after the last one.
            if progress.is_ended and progress.num_in_flight == 0:
                del self._admitted[item.request.id]

    @property
    def is_drained(self) -> bool:
        return not self._waiting and all(
            p.is_ended or p.num_scheduled == p.request.max_output_tokens for p in self._admitted.values()
        )

    @property
    def num_held(self) -> int:
        return len(self._admitted)
