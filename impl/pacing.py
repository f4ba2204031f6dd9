"""When to close the next batch: just before the running forward ends, from times measured so far."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from impl.core import Batch, Flight
from impl.costs import BatchTime

WINDOW = 64
"""Finished forwards that an estimate rests on."""
MARGIN_WINDOW = 8
"""Finished forwards whose misses set the margin."""
MAX_TIMER_LATENESS_NS = 1_000_000
"""A timer that fires up to this late counts as the machine's imprecision."""
TOKENS_UNIT = 64.0
"""Scale of the token feature, so that all features are of similar size."""
SLOPE_PENALTY = 1e-3
"""Ridge on the slopes alone: without evidence for a slope, a forward's time counts as constant."""


class ForwardTimeEstimator:
    """Learns forward time ≈ a + b · size + c · tokens by least squares over the last forwards.

    Prefill and decode are learned apart: their times follow different lines.
    """

    def __init__(self) -> None:
        self._seen: dict[bool, deque[tuple[tuple[float, float, float], float]]] = {}
        self._weights: dict[bool, list[float]] = {}

    def __call__(self, batch: Batch) -> int | None:
        """Return the expected forward time in nanoseconds; None before any such forward has finished."""
        weights = self._weights.get(batch.is_prefill)
        if weights is None:
            return None
        return max(0, round(sum(w * x for w, x in zip(weights, _features(batch), strict=True))))

    def observe(self, batch: Batch, forward_ns: int) -> None:
        """Learn from a finished forward."""
        seen = self._seen.setdefault(batch.is_prefill, deque(maxlen=WINDOW))
        seen.append((_features(batch), float(forward_ns)))
        self._weights[batch.is_prefill] = _least_squares(seen)


def _features(batch: Batch) -> tuple[float, float, float]:
    return 1.0, float(batch.size), batch.num_tokens / TOKENS_UNIT


def _least_squares(seen: deque[tuple[tuple[float, float, float], float]]) -> list[float]:
    """Solve the 3 × 3 normal equations by elimination; they are positive definite by the penalty."""
    rows = [[0.0] * 4 for _ in range(3)]
    for features, value in seen:
        for i, x in enumerate(features):
            row = rows[i]
            for j, y in enumerate(features):
                row[j] += x * y
            row[3] += x * value
    rows[1][1] += SLOPE_PENALTY
    rows[2][2] += SLOPE_PENALTY
    for i in range(3):
        for k in range(i + 1, 3):
            factor = rows[k][i] / rows[i][i]
            for j in range(i, 4):
                rows[k][j] -= factor * rows[i][j]
    weights = [0.0, 0.0, 0.0]
    for i in (2, 1, 0):
        known = sum(rows[i][j] * weights[j] for j in range(i + 1, 3))
        weights[i] = (rows[i][3] - known) / rows[i][i]
    return weights


@dataclass(slots=True)
class _Closed:
    """A batch on its way: when it should have been closed, when it was, and when its launch began."""

    batch: Batch
    late_ns: int
    closed_ns: int
    handed_ns: int


class Pacer:
    """Predicts when the next batch has to be closed so that it is launched as the running forward ends.

    Used by one thread. Call `handed` when a batch goes to the launch, `finished` for each forward in order.

    Args:
        forward_time: the true forward time, for an oracle; by default it is learned.
    """

    def __init__(self, forward_time: BatchTime | None = None) -> None:
        self._learned = ForwardTimeEstimator()
        self._forward_time = forward_time or self._learned
        self._in_flight: deque[_Closed] = deque()
        self._last_end_ns = 0
        self._launch_ns = 0
        self._predicted_end_ns: int | None = None
        self._due_ns: int | None = None
        self._host_ns: deque[int] = deque(maxlen=MARGIN_WINDOW)
        """From the moment a batch was due until its launch returned, waiting for requests left out."""
        self._overestimates_ns: deque[int] = deque(maxlen=MARGIN_WINDOW)

    @property
    def num_in_flight(self) -> int:
        """Batches handed to the launch whose forward is not known to have ended."""
        return len(self._in_flight)

    @property
    def margin_ns(self) -> int:
        """Time by which batches are closed earlier: the worst recent prediction of an end that came sooner."""
        return max(0, *self._overestimates_ns) if self._overestimates_ns else 0

    def close_ns(self) -> int | None:
        """Return when to close the next batch, while one forward runs; None if its time is unknown.

        Then the next batch waits for its end, which costs one bubble and not a badly filled batch.
        """
        running = self._in_flight[0]
        forward_ns = self._forward_time(running.batch)
        if forward_ns is None:
            return None
        start_ns = max(self._last_end_ns, running.handed_ns + self._launch_ns)
        self._predicted_end_ns = start_ns + forward_ns
        self._due_ns = self._predicted_end_ns - max(self._host_ns, default=0) - self.margin_ns
        return self._due_ns

    def handed(self, batch: Batch, *, asked_ns: int, closed_ns: int, now_ns: int) -> None:
        """Note that a batch goes to the launch now; it was asked for at `asked_ns` and closed at `closed_ns`."""
        late_ns = 0 if self._due_ns is None else max(0, asked_ns - self._due_ns)
        # Later than by a timer's imprecision: the scheduler was held up, which no earlier timer would cure.
        self._in_flight.append(_Closed(batch, late_ns if late_ns < MAX_TIMER_LATENESS_NS else 0, closed_ns, now_ns))
        self._due_ns = None

    def finished(self, flight: Flight) -> None:
        """Learn from the oldest forward in flight, which has ended."""
        closed = self._in_flight.popleft()
        _, end_ns, _ = flight.times()
        if self._predicted_end_ns is not None:
            self._overestimates_ns.append(self._predicted_end_ns - end_ns)
            self._predicted_end_ns = None
        self._host_ns.append(closed.late_ns + flight.launched_ns - closed.closed_ns)
        self._launch_ns = flight.launched_ns - closed.handed_ns
        self._last_end_ns = end_ns
        self._learned.observe(closed.batch, flight.forward_ns)
