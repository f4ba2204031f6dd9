"""When to close the next batch: just before the running forward ends, from times measured so far."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median_low

from impl.core import Batch, Flight
from impl.costs import BatchTime

WINDOW = 64
"""Finished forwards that an estimate rests on."""
MARGIN_WINDOW = 8
"""Timed batches that set the margin."""
FIRST_MARGIN = 0.05
"""Margin, as a share of the host's time, until a few batches have been timed."""
NUM_FIRST_TIMED = 3
MAX_CLOSING_NS = 1_000_000
"""A batch that takes longer to close had to wait for requests; its timing says nothing about the estimates."""
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
    """A batch on its way to the GPU."""

    batch: Batch
    closed_ns: int
    handed_ns: int
    margin_ns: int | None
    """The margin with which it was timed; None if it was not, or if it had to wait for requests."""


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
        self._host_ns: deque[int] = deque(maxlen=MARGIN_WINDOW)
        """From closing a batch until its launch returned."""
        self._launch_ns = 0
        """The part of it that the launch took, the last time."""
        self._is_timed = False
        self._needed_ns: deque[int] = deque(maxlen=MARGIN_WINDOW)

    @property
    def num_in_flight(self) -> int:
        """Batches handed to the launch whose forward is not known to have ended."""
        return len(self._in_flight)

    @property
    def margin_ns(self) -> int:
        """By how much batches are closed earlier than estimated: what all recent ones but the worst needed.

        One hold-up of the host would otherwise make the next batches smaller for nothing.
        """
        if len(self._needed_ns) < NUM_FIRST_TIMED:
            return round(FIRST_MARGIN * median_low(self._host_ns)) if self._host_ns else 0
        return max(0, sorted(self._needed_ns)[-2])

    def close_ns(self) -> int | None:
        """Return when to close the next batch, while one forward runs; None before anything is known.

        Then the next batch waits for its end, which costs one bubble and not a badly filled batch.
        """
        running = self._in_flight[0]
        forward_ns = self._forward_time(running.batch)
        self._is_timed = forward_ns is not None and len(self._host_ns) > 0
        if forward_ns is None or not self._is_timed:
            return None
        start_ns = max(self._last_end_ns, running.handed_ns + self._launch_ns)
        return start_ns + forward_ns - median_low(self._host_ns) - self.margin_ns

    def handed(self, batch: Batch, *, asked_ns: int, closed_ns: int, now_ns: int) -> None:
        """Note that a batch goes to the launch now; it was asked for at `asked_ns` and closed at `closed_ns`."""
        had_to_wait = closed_ns - asked_ns > MAX_CLOSING_NS
        margin_ns = self.margin_ns if self._is_timed and not had_to_wait else None
        self._in_flight.append(_Closed(batch, closed_ns, now_ns, margin_ns))
        self._is_timed = False

    def finished(self, flight: Flight) -> None:
        """Learn from the oldest forward in flight, which has ended."""
        closed = self._in_flight.popleft()
        start_ns, end_ns, _ = flight.times()
        if closed.margin_ns is not None:
            is_late = flight.launched_ns >= self._last_end_ns
            late_ns = (start_ns if is_late else flight.launched_ns) - self._last_end_ns
            self._needed_ns.append(closed.margin_ns + late_ns)
        self._host_ns.append(flight.launched_ns - closed.closed_ns)
        self._launch_ns = flight.launched_ns - closed.handed_ns
        self._last_end_ns = end_ns
        self._learned.observe(closed.batch, flight.forward_ns)
