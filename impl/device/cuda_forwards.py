"""Forwards of a wanted length on a CUDA GPU: fp32 matrix products, measured once and replayed as CUDA graphs.

Three kernels of about 20 µs, 0.3 ms and 5 ms are the units. A forward is at most a few graph launches, each a
whole number of one unit, so a launch costs the host little and never fills the stream's queue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

UNIT_SHAPES = ((512, 20_000), (2048, 320_000), (4096, 5_120_000))
"""Rows and columns of each unit's result, and the time it should take, in nanoseconds; the inner size is fitted."""
MAX_COPIES = 16
"""Kernels of one unit in one graph."""
FIT_COPIES = 4
REPEATS = 5
WARM_UP_MATMULS = 200


@dataclass(frozen=True, slots=True)
class Unit:
    """One kernel, alone and as graphs of 1 … `MAX_COPIES` copies."""

    left: torch.Tensor
    right: torch.Tensor
    result: torch.Tensor
    graphs: tuple[torch.cuda.CUDAGraph, ...]
    kernel_ns: float
    """Time of one copy inside a graph."""
    graph_ns: float
    """Additional time of a graph, however many copies it holds."""

    def replay(self, num_copies: int) -> None:
        """Enqueue copies on the current stream."""
        while num_copies > 0:
            now = min(num_copies, MAX_COPIES)
            self.graphs[now - 1].replay()
            num_copies -= now


class CalibratedForwards:
    """Composes forwards from measured units; made once for a process and GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._capture_stream = torch.cuda.Stream(device)
        self._plans: dict[int, list[tuple[Unit, int]]] = {}
        self._warm_up()
        self._units = tuple(self._make_unit(dim, wanted_ns) for dim, wanted_ns in reversed(UNIT_SHAPES))

    def plan(self, forward_ns: int) -> list[tuple[Unit, int]]:
        """Return the units and numbers of copies that together take `forward_ns`, longest unit first."""
        plan = self._plans.get(forward_ns)
        if plan is None:
            plan = self._plans[forward_ns] = self._make_plan(forward_ns)
        return plan

    def _make_plan(self, forward_ns: int) -> list[tuple[Unit, int]]:
        remaining_ns = float(forward_ns)
        parts = []
        for unit in self._units:
            is_last = unit is self._units[-1]
            copies = (remaining_ns - unit.graph_ns) / unit.kernel_ns
            num_copies = max(0, round(copies) if is_last else int(copies))
            if num_copies:
                parts.append((unit, num_copies))
                remaining_ns -= num_copies * unit.kernel_ns + unit.graph_ns
        return parts

    def small_kernel(self, kernel_ns: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return operands and result of one small matrix product that takes about `kernel_ns`."""
        unit = self._units[-1]
        inner = max(16, round(unit.left.shape[1] * kernel_ns / unit.kernel_ns / 16) * 16)
        dim = unit.left.shape[0]
        return (*self._operands(dim, inner), unit.result)

    def _operands(self, dim: int, inner: int) -> tuple[torch.Tensor, torch.Tensor]:
        left = torch.randn(dim, inner, device=self._device) / inner
        return left, torch.randn(inner, dim, device=self._device)

    def _warm_up(self) -> None:
        """Bring the clock up from idle; nothing is measured before."""
        left, right = self._operands(4096, 4096)
        for _ in range(WARM_UP_MATMULS):
            torch.mm(left, right)
        torch.cuda.synchronize()

    def _make_unit(self, dim: int, wanted_ns: int) -> Unit:
        result = torch.empty(dim, dim, device=self._device)
        inner = dim // 2
        for _ in range(2):  # the time is nearly linear in the inner size, so the second fit is close
            left, right = self._operands(dim, inner)
            measured_ns = self._time_graph(self._graph(left, right, result, FIT_COPIES)) / FIT_COPIES
            inner = max(16, round(inner * wanted_ns / measured_ns / 16) * 16)
        left, right = self._operands(dim, inner)
        graphs = tuple(self._graph(left, right, result, copies) for copies in range(1, MAX_COPIES + 1))
        few, many = FIT_COPIES, MAX_COPIES
        few_ns, many_ns = self._time_graph(graphs[few - 1]), self._time_graph(graphs[many - 1])
        kernel_ns = (many_ns - few_ns) / (many - few)
        return Unit(left, right, result, graphs, kernel_ns, max(0.0, many_ns - many * kernel_ns))

    def _graph(
        self, left: torch.Tensor, right: torch.Tensor, result: torch.Tensor, copies: int
    ) -> torch.cuda.CUDAGraph:
        return capture(self._capture_stream, lambda: torch.mm(left, right, out=result), copies)

    def _time_graph(self, graph: torch.cuda.CUDAGraph) -> float:
        """Return the median time of a replay behind another one, in nanoseconds."""
        times = []
        for _ in range(REPEATS):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            graph.replay()
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            elapsed_ms: float = start.elapsed_time(end)
            times.append(elapsed_ms * 1e6)
        return median(times)


def capture(stream: torch.cuda.Stream, operation: Callable[[], object], copies: int = 1) -> torch.cuda.CUDAGraph:
    """Capture `copies` of an operation as a graph; `stream` carries the capture and nothing else."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        operation()  # outside the capture first: it loads the kernel
        stream.synchronize()
        # Not torch.cuda.graph(), which collects garbage at every capture. Other threads may go on meanwhile.
        graph.capture_begin(capture_error_mode="thread_local")
        for _ in range(copies):
            operation()
        graph.capture_end()
    return graph


def measure_copy_rate(device: torch.device, num_bytes: int = 2**26) -> float:
    """Return the bytes a nanosecond that a copy from the device to pinned host memory reaches."""
    source = torch.empty(num_bytes, dtype=torch.uint8, device=device)
    target = torch.empty(num_bytes, dtype=torch.uint8, pin_memory=True)
    target.copy_(source, non_blocking=True)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(REPEATS):
        target.copy_(source, non_blocking=True)
    end.record()
    end.synchronize()
    elapsed_ms: float = start.elapsed_time(end)
    return REPEATS * num_bytes / (elapsed_ms * 1e6)
