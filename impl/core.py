"""The data a run passes around: requests, batches, and forwards in the air."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from impl.errors import ProtocolError

if TYPE_CHECKING:
    from impl.device.stream import Stream


@dataclass(frozen=True, slots=True)
class Request:
    """One request of the workload.

    `arrival_ns` counts from the start of the run. A request ends after `max_output_tokens`
    tokens (a length limit, known when scheduling) or with output token number `stop_after`
    (a stop token, known only once the host has seen it), whichever comes first.
    """

    id: int
    arrival_ns: int
    prompt_tokens: int = 1
    max_output_tokens: int = 1
    stop_after: int | None = None

    @property
    def num_output_tokens(self) -> int:
        """Tokens the request delivers before it ends."""
        if self.stop_after is None:
            return self.max_output_tokens
        return min(self.stop_after, self.max_output_tokens)


@dataclass(slots=True)
class Item:
    """One request's share of a batch.

    `position` is the index (from 0) of the output token that this forward produces for the
    request, or None for a prompt chunk that is not the last one and so produces no token.
    """

    request: Request
    num_tokens: int
    position: int | None


@dataclass(slots=True)
class Batch:
    """Requests that go through one forward together."""

    id: int
    items: list[Item]
    num_tokens: int
    is_prefill: bool
    upload: tuple[Stream, int] | None = None
    """Stream that carries the inputs to the device, and its operation number; filled by `Engine.pre`."""
    is_launched: bool = False
    inputs: Any = None
    """The inputs on the device; filled by `Device.upload`, kept alive until the forward is done."""

    @property
    def size(self) -> int:
        """Number of requests."""
        return len(self.items)


class ForwardTimes(NamedTuple):
    """When a forward ran and when its tokens were on the host, on the runtime's clock."""

    start_ns: int
    end_ns: int
    copy_end_ns: int
    """When the tokens were there; from the forward's end that may include waiting for the copy engine."""


@dataclass(slots=True)
class Flight:
    """A forward in the air: launched, perhaps not finished.

    Its times are known once `Engine.synchronize` has returned, on every device: a scheduler cannot read the future,
    not even on the virtual device.
    """

    batch: Batch
    launched_ns: int
    """When the launch returned to the host; filled by `Engine.launch`."""
    payload: Any
    """What the device needs to wait for the forward and read its tokens; owned by the device."""
    stream_name: str
    read_times: Callable[[], ForwardTimes] | None = None
    """Filled by `Device.wait`. Reading a GPU's events takes microseconds, so it is left to whoever needs them."""
    tokens: list[int] = field(default_factory=list)
    """One token for each item of the batch; filled by `Engine.synchronize`."""
    is_posted: bool = False

    @property
    def is_synchronized(self) -> bool:
        """Whether the tokens are on the host."""
        return self.read_times is not None

    def times(self) -> ForwardTimes:
        """Return start and end of the forward and the end of its copy, until the run's device is closed.

        Raises:
            ProtocolError: before `Engine.synchronize(flight)` has returned.
        """
        if self.read_times is None:
            raise ProtocolError(
                f"the forward of batch {self.batch.id} has no measured times yet; call engine.synchronize(flight) first"
            )
        return self.read_times()

    @property
    def forward_ns(self) -> int:
        """Time the forward took on the device. Raises ProtocolError before it was synchronized."""
        start_ns, end_ns, _ = self.times()
        return end_ns - start_ns
