"""Streams as every device has them: FIFO, with recorded order, so that a missing wait is found and not luck."""

from __future__ import annotations

from impl.core import Batch
from impl.errors import ProtocolError


class Stream:
    """A FIFO of device operations.

    `handle` is the device's own name for it. Each operation gets a number; `wait_stream` remembers up to which
    number of the other stream this one is ordered. Devices subclass it to add the waiting itself.
    """

    def __init__(self, name: str, handle: int) -> None:
        self.name = name
        self.handle = handle
        self.num_issued = 0
        self._ordered_after: dict[int, int] = {}

    def issue(self) -> int:
        """Number the next operation of this stream."""
        self.num_issued += 1
        return self.num_issued

    def wait_stream(self, other: Stream) -> None:
        """Let everything issued on this stream from now on wait for everything issued on `other` so far."""
        self._ordered_after[other.handle] = other.num_issued

    def require_inputs(self, batch: Batch) -> None:
        """Check that a forward on this stream may read the batch's inputs.

        Raises:
            ProtocolError: if the batch has no inputs, or nothing orders this stream after their upload.
        """
        if batch.upload is None:
            raise ProtocolError(
                f"batch {batch.id} is launched without its inputs; call engine.pre(batch, stream) first"
            )
        source, operation = batch.upload
        if source is not self and self._ordered_after.get(source.handle, 0) < operation:
            raise ProtocolError(
                f"batch {batch.id} reads inputs uploaded on stream {source.name!r}, and stream {self.name!r} never "
                f"waited for that upload; call {self.name}.wait_stream({source.name}) before the launch"
            )


class StreamRegistry:
    """The streams of one run, all different."""

    def __init__(self) -> None:
        self._by_handle: dict[int, Stream] = {}

    def add(self, stream: Stream) -> None:
        """Register a new stream.

        Raises:
            ProtocolError: if the device handed out a stream that this run already uses.
        """
        twin = self._by_handle.get(stream.handle)
        if twin is not None:
            raise ProtocolError(
                f"streams {twin.name!r} and {stream.name!r} are the same stream (handle {stream.handle:#x}): what "
                "runs on one waits for the other, and the overlap is gone. PyTorch hands out streams from a ring "
                "of 32; create each stream once and keep it"
            )
        self._by_handle[stream.handle] = stream


STREAM_RING = 32
"""Streams that PyTorch's pool holds before it hands out the first one again.

Source: PyTorch, c10/cuda/CUDAStream.cpp, kStreamsPerPool.
"""
