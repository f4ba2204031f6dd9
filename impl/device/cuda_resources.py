"""What the runs on a GPU share: calibrated forwards, buffers, events.

Ownership: everything that one stream writes and another reads (inputs, tokens, host buffers) lies in a slot. A batch
takes a slot when its inputs are uploaded, and it goes back for reuse only after the copy's event is done; so no buffer
is overwritten or handed out while the GPU may still touch it. Events are not recorded again within a run: their times
are read when somebody asks, mostly at its end.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

import numpy as np
import torch

from impl.device.cuda_forwards import CalibratedForwards, capture, measure_copy_rate
from impl.tokens import MULTIPLIER

SLOT_SIZE = 1024
"""Requests that a batch may hold: the buffers of a slot have this many elements."""
MAX_RESERVED = 128
"""Forwards for which slots and events are made ahead of a run; what more it needs is made in its middle."""


class Events:
    """Events around one forward and behind its copy."""

    def __init__(self) -> None:
        self.start, self.end, self.copied = (torch.cuda.Event(enable_timing=True) for _ in range(3))


class Slot:
    """Buffers and small graphs of one forward; int32 [SLOT_SIZE] each.

    Copies and the token kernel are replayed as graphs of whole buffers: after a pause of milliseconds a graph
    launch costs the host a few microseconds where a tensor operation costs a hundred (measured on an H200).
    """

    def __init__(self, device: torch.device, capture_stream: torch.cuda.Stream) -> None:
        pinned_codes = torch.zeros(SLOT_SIZE, dtype=torch.int32, pin_memory=True)
        pinned_tokens = torch.zeros(SLOT_SIZE, dtype=torch.int32, pin_memory=True)
        codes = torch.zeros(SLOT_SIZE, dtype=torch.int32, device=device)
        tokens = torch.zeros(SLOT_SIZE, dtype=torch.int32, device=device)
        self.codes_on_host = pinned_codes.numpy()
        self.tokens_on_host = pinned_tokens.numpy().view(np.uint32)
        self.tokens = tokens
        self.upload = capture(capture_stream, lambda: codes.copy_(pinned_codes, non_blocking=True))
        self.compute = capture(capture_stream, lambda: torch.mul(codes, MULTIPLIER, out=tokens))
        self.download = capture(capture_stream, lambda: pinned_tokens.copy_(tokens, non_blocking=True))
        self._owned = pinned_codes, pinned_tokens, codes, tokens
        """What the graphs read and write; graphs hold addresses only."""


class CudaResources:
    """What all runs on a GPU share: calibrated forwards, operands of literal ones, slots, events, copy buffers."""

    def __init__(self) -> None:
        self.device = torch.device("cuda", torch.cuda.current_device())
        self.forwards = CalibratedForwards(self.device)
        self._lock = threading.Lock()
        """Held where something is made at its first use: two threads of a run may come at once."""
        self._copy_bytes_per_ns: float | None = None
        self._copy_pair: tuple[torch.Tensor, torch.Tensor] | None = None
        self._squares: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._small: dict[float, tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}
        self._capture_stream = torch.cuda.Stream(self.device)
        self._free_slots: deque[Slot] = deque()
        self._num_slots = 0
        self._free_events: deque[Events] = deque()

    def reserve(self, num_forwards: int) -> None:
        """Make slots and events for this many forwards, at most `MAX_RESERVED`; they are kept for later runs."""
        num_forwards = min(num_forwards, MAX_RESERVED)
        while self._num_slots < num_forwards:
            self._free_slots.append(self._make_slot())
        while len(self._free_events) < num_forwards:
            events = Events()
            for event in (events.start, events.end, events.copied):
                event.record(self._capture_stream)  # CUDA makes an event at its first recording
            self._free_events.append(events)

    def _make_slot(self) -> Slot:
        with self._lock:
            slot = Slot(self.device, self._capture_stream)
            self._num_slots += 1
            return slot

    def take_slot(self) -> Slot:
        """Return a slot that nothing uses."""
        try:
            return self._free_slots.pop()
        except IndexError:
            return self._make_slot()

    def give_back(self, slot: Slot) -> None:
        """Take back a slot whose copy is done."""
        self._free_slots.append(slot)

    def take_events(self) -> Events:
        """Return events that nobody will read any more."""
        try:
            return self._free_events.pop()
        except IndexError:
            return Events()

    def give_back_events(self, events: Iterable[Events]) -> None:
        """Take back events whose times are not needed any more."""
        self._free_events.extend(events)

    def square(self, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return an operand and a result of dim × dim."""
        with self._lock:
            if dim not in self._squares:
                operand = torch.randn(dim, dim, device=self.device) / dim
                self._squares[dim] = operand, torch.empty_like(operand)
            return self._squares[dim]

    def small_kernel(self, kernel_ns: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return operands and result of a product of about `kernel_ns`."""
        with self._lock:
            if kernel_ns not in self._small:
                self._small[kernel_ns] = self.forwards.small_kernel(kernel_ns)
            return self._small[kernel_ns]

    def copy_buffers(self, copy_ns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a device and a pinned host buffer whose copy takes `copy_ns`."""
        with self._lock:
            if self._copy_bytes_per_ns is None:
                self._copy_bytes_per_ns = measure_copy_rate(self.device)
            num_bytes = round(copy_ns * self._copy_bytes_per_ns)
            if self._copy_pair is None or self._copy_pair[0].numel() < num_bytes:
                self._copy_pair = (
                    torch.empty(num_bytes, dtype=torch.uint8, device=self.device),
                    torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True),
                )
            source, target = self._copy_pair
            return source[:num_bytes], target[:num_bytes]
