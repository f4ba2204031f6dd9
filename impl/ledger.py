"""Which tokens have reached their request: every token in order, every request ended exactly once."""

from __future__ import annotations

from enum import Enum

from impl.core import Item
from impl.errors import ProtocolError
from impl.tokens import STOP_TOKEN
from impl.workload import Workload


class Outcome(Enum):
    """What became of one item of a forward."""

    DELIVERED = "delivered"
    ENDED = "ended"
    """Delivered, and it was the request's last token."""
    SURPLUS = "surplus"
    """Dropped: the request had ended before the host knew."""
    CHUNK = "chunk"
    """A prompt chunk that produces no token."""


class Ledger:
    """Deliveries of one run."""

    def __init__(self, workload: Workload) -> None:
        self._requests = workload.requests
        self.tokens: list[list[int]] = [[] for _ in workload.requests]
        self._is_ended = [False] * len(workload.requests)

    def deliver(self, item: Item, token: int) -> Outcome:
        """Record one token.

        Raises:
            ProtocolError: if a token is repeated or skipped.
        """
        if item.position is None:
            return Outcome.CHUNK
        request = item.request
        delivered = self.tokens[request.id]
        if item.position >= len(delivered) and self._is_ended[request.id]:
            return Outcome.SURPLUS
        if item.position != len(delivered):
            problem = "repeated" if item.position < len(delivered) else "out of order"
            raise ProtocolError(
                f"output {item.position} of request {request.id} is {problem}: "
                f"{len(delivered)} outputs were delivered before it"
            )
        delivered.append(token)
        if token == STOP_TOKEN or len(delivered) == request.max_output_tokens:
            self._is_ended[request.id] = True
            return Outcome.ENDED
        return Outcome.DELIVERED

    def require_all_ended(self) -> None:
        """Check the end of a run.

        Raises:
            ProtocolError: naming the requests that never ended.
        """
        lost = [request for request in self._requests if not self._is_ended[request.id]]
        if not lost:
            return
        named = ", ".join(f"{r.id} ({len(self.tokens[r.id])} of {r.num_output_tokens} outputs)" for r in lost[:5])
        more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
        raise ProtocolError(
            f"the scheduler returned although {len(lost)} of {len(self._requests)} requests never ended: "
            f"request {named}{more}; every batch needs launch, synchronize and post"
        )
