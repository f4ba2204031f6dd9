"""When to close the next batch: just before the running forward ends, from times measured so far."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from operator import add, sub
from statistics import median_low

from impl.core import Batch, Flight
from impl.costs import BatchTime

WINDOW = 64
"""Finished forwards that an estimate rests on."""
HOST_WINDOW = 16
"""Batches that set what the host is expected to take, and the margin."""
FIRST_MARGIN = 0.05
"""Margin, as a share of the host's time, until `NUM_FIRST_TIMED` batches have been timed."""
NUM_FIRST_TIMED = 3
IDLE_NS = 100_000
"""A GPU that was busy starts its next forward sooner; so one that starts later was idle."""
SIZE_PENALTY = 1e-3
"""Ridge penalty on the slope per request: without evidence for a slope, a forward's time counts as constant."""
TOKENS_PENALTY = 4.0
"""The same for the slope per token. √(4 / 0.001) ≈ 63: a slope 63 times smaller is penalized as much, as a token
costs far less than a request."""


class ForwardTimeEstimator:
    """Learns forward time ≈ a + b · size + c · tokens by least squares over the last forwards.

    Prefill and decode are learned apart: their times follow different planes. `observe` runs while the launch thread
    enqueues the next forward and needs the GIL. So it only updates running sums; the fit is solved when an estimate is
    asked for.
    """

    def __init__(self) -> None:
        self._fits = {is_prefill: _LinearFit() for is_prefill in (False, True)}

    def __call__(self, batch: Batch) -> int | None:
        """Return the expected forward time in nanoseconds; None before any such forward has finished."""
        return self._fits[batch.is_prefill].predict(batch.size, batch.num_tokens)

    def observe(self, batch: Batch, forward_ns: int) -> None:
        """Learn from a finished forward."""
        self._fits[batch.is_prefill].observe(batch.size, batch.num_tokens, forward_ns)


class _LinearFit:
    """Ridge regression of time on size and tokens over the last `WINDOW` observations.

    The running sums are integers: taking an old observation out leaves no rounding error.
    """

    def __init__(self) -> None:
        self._observed: deque[tuple[int, int, int]] = deque()
        """Size, tokens and nanoseconds of each."""
        self._sums = (0,) * 9
        self._coefficients: tuple[float, float, float] | None = None
        """Constant, per request, per token; None where they have to be found anew."""

    def observe(self, size: int, num_tokens: int, forward_ns: int) -> None:
        observed = size, num_tokens, forward_ns
        self._observed.append(observed)
        self._sums = tuple(map(add, self._sums, _products(*observed)))
        if len(self._observed) > WINDOW:
            self._sums = tuple(map(sub, self._sums, _products(*self._observed.popleft())))
        self._coefficients = None

    def predict(self, size: int, num_tokens: int) -> int | None:
        if not self._observed:
            return None
        if self._coefficients is None:
            self._coefficients = self._solve()
        constant, per_request, per_token = self._coefficients
        return max(0, round(constant + per_request * size + per_token * num_tokens))

    def _solve(self) -> tuple[float, float, float]:
        """Eliminate by hand: LAPACK's last bits differ between machines, and virtual runs are compared exactly."""
        n, s, t, ss, st, tt, y, sy, ty = self._sums
        # n times each variance and covariance; the differences are exact.
        var_s, cov_st, var_t = (n * ss - s * s) / n, (n * st - s * t) / n, (n * tt - t * t) / n
        cov_sy, cov_ty = (n * sy - s * y) / n, (n * ty - t * y) / n
        var_s += SIZE_PENALTY
        factor = cov_st / var_s
        rest_t = max(0.0, var_t - factor * cov_st)  # rounding can make it negative
        per_token = (cov_ty - factor * cov_sy) / (rest_t + TOKENS_PENALTY)
        per_request = (cov_sy - cov_st * per_token) / var_s
        return (y - s * per_request - t * per_token) / n, per_request, per_token


def _products(size: int, num_tokens: int, forward_ns: int) -> tuple[int, ...]:
    """Return what an observation adds to the sums of the normal equations."""
    return (
        1,
        size,
        num_tokens,
        size * size,
        size * num_tokens,
        num_tokens * num_tokens,
        forward_ns,
        size * forward_ns,
        num_tokens * forward_ns,
    )


@dataclass(slots=True)
class _Closed:
    """A batch on its way to the GPU."""

    batch: Batch
    closed_ns: int
    handed_ns: int
    due_ns: int | None
    """When closing it without a margin was due; None if nothing was known yet."""


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
        self._tail_ns = 0
        """How long a launch goes on after an idle GPU has started its forward; below 0 if the forward starts only
        after the launch has returned.
        """
        self._host_ns: deque[int] = deque(maxlen=HOST_WINDOW)
        """From closing a batch until the GPU could start it."""
        self._launch_ns = 0
        """The part of it that the launch took, the last time."""
        self._due_ns: int | None = None
        """When closing the next batch is due, without the margin."""
        self._needed_ns: deque[int] = deque(maxlen=HOST_WINDOW)
        """The margin with which each batch would have been ready just as the forward before it ended."""

    @property
    def num_in_flight(self) -> int:
        """Batches handed to the launch whose forward is not known to have ended."""
        return len(self._in_flight)

    @property
    def margin_ns(self) -> int:
        """By how much batches are closed earlier than estimated: enough for seven of eight recent ones.

        Enough for all would make them smaller for the sake of a few hold-ups of the host. Below 0, batches are closed
        later: where forwards are estimated too short.
        """
        if len(self._needed_ns) < NUM_FIRST_TIMED:
            return round(FIRST_MARGIN * median_low(self._host_ns)) if self._host_ns else 0
        return sorted(self._needed_ns)[-1 - len(self._needed_ns) // 8]

    def close_ns(self) -> int | None:
        """Return when to close the next batch, while one forward runs; None before anything is known.

        Where it is None the batch waits for the forward's end, which costs one bubble and not a badly filled batch.
        Also remembers, for `handed`, when closing is due without the margin.
        """
        running = self._in_flight[0]
        forward_ns = self._forward_time(running.batch)
        if forward_ns is None or not self._host_ns:
            return None
        start_ns = max(self._last_end_ns, running.handed_ns + self._launch_ns)
        self._due_ns = start_ns + forward_ns - median_low(self._host_ns)
        return self._due_ns - self.margin_ns

    def handed(self, batch: Batch, *, closed_ns: int, now_ns: int) -> None:
        """Note that a batch, closed at `closed_ns`, goes to the launch now."""
        self._in_flight.append(_Closed(batch, closed_ns, now_ns, self._due_ns))
        self._due_ns = None

    def finished(self, flight: Flight) -> None:
        """Learn from the oldest forward in flight, which has ended."""
        closed = self._in_flight.popleft()
        start_ns, end_ns, _ = flight.times()
        if start_ns - self._last_end_ns > IDLE_NS:
            self._tail_ns = flight.launched_ns - start_ns
        ready_ns = flight.launched_ns - self._tail_ns
        if closed.due_ns is not None:
            # Counted from when closing was due without the margin: if it could not be done that early, the rest is no
            # need of a margin, and would raise the next ones without end.
            self._needed_ns.append(closed.due_ns - closed.closed_ns + ready_ns - self._last_end_ns)
        self._host_ns.append(ready_ns - closed.closed_ns)
        self._launch_ns = ready_ns - closed.handed_ns
        self._last_end_ns = end_ns
        self._learned.observe(closed.batch, end_ns - start_ns)
