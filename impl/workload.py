"""Which requests arrive when: bursts, constant spacing, Poisson and gamma arrivals, with prompt and output lengths."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

from impl.checks import require_positive, require_whole
from impl.core import Request
from impl.errors import SettingError
from impl.tokens import MAX_REQUESTS, POSITIONS

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in order of arrival, open loop: nobody waits for an answer before sending the next."""

    requests: tuple[Request, ...]

    def __post_init__(self) -> None:
        require_whole("number of requests", len(self.requests), at_least=1, unit="requests")
        if len(self.requests) > MAX_REQUESTS:
            raise SettingError(f"{len(self.requests)} requests; allowed: at most {MAX_REQUESTS} in one workload")
        previous_ns = 0
        for index, request in enumerate(self.requests):
            _check_request(request, index, previous_ns)
            previous_ns = request.arrival_ns

    @property
    def mean_gap_ns(self) -> float:
        """Mean time between arrivals; 0 for one request or a burst."""
        return self.requests[-1].arrival_ns / max(1, len(self.requests) - 1)

    def scaled(self, factor: float) -> Workload:
        """Return this workload with every arrival multiplied by `factor`, a positive number."""
        require_positive("scale", factor, unit="times the original time")
        return Workload(tuple(replace(r, arrival_ns=round(r.arrival_ns * factor)) for r in self.requests))


def _check_request(request: Request, index: int, previous_ns: int) -> None:
    where = f"request {request.id}"
    require_whole(f"{where}: arrival_ns", request.arrival_ns, at_least=0, unit="nanoseconds")
    if request.id != index:
        raise SettingError(f"{where} stands at place {index}; allowed: ids 0, 1, 2, … in order of arrival")
    if request.arrival_ns < previous_ns:
        raise SettingError(
            f"{where} arrives at {request.arrival_ns} ns, before its predecessor ({previous_ns} ns); "
            "allowed: arrivals in ascending order"
        )
    require_whole(f"{where}: prompt_tokens", request.prompt_tokens, at_least=1, unit="tokens")
    require_whole(f"{where}: max_output_tokens", request.max_output_tokens, at_least=1, unit="tokens")
    if request.max_output_tokens > POSITIONS:
        raise SettingError(
            f"{where}: max_output_tokens is {request.max_output_tokens} tokens; allowed: at most {POSITIONS}"
        )
    if request.stop_after is not None:
        require_whole(f"{where}: stop_after", request.stop_after, at_least=1, unit="tokens")


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of a request: prompt, longest output, and the output token that is a stop token (or None)."""

    prompt_tokens: int = 1
    max_output_tokens: int = 1
    stop_after: int | None = None


def from_gaps(gaps_ns: Iterable[int], lengths: Lengths | Iterable[Lengths] = Lengths()) -> Workload:
    """Make a workload from the time between each request and the one before it, in nanoseconds."""
    gaps = list(gaps_ns)
    each = [lengths] * len(gaps) if isinstance(lengths, Lengths) else list(lengths)
    if len(each) != len(gaps):
        raise SettingError(f"{len(each)} lengths for {len(gaps)} requests; allowed: one for each request")
    now_ns = 0
    requests = []
    for index, (gap_ns, length) in enumerate(zip(gaps, each, strict=True)):
        now_ns += gap_ns
        requests.append(Request(index, now_ns, length.prompt_tokens, length.max_output_tokens, length.stop_after))
    return Workload(tuple(requests))


def burst(num_requests: int, lengths: Lengths | Iterable[Lengths] = Lengths()) -> Workload:
    """Let all requests arrive at the start."""
    require_whole("num_requests", num_requests, at_least=1, unit="requests")
    return from_gaps([0] * num_requests, lengths)


def constant(num_requests: int, *, qps: float, lengths: Lengths | Iterable[Lengths] = Lengths()) -> Workload:
    """Let requests arrive at even distances of 1 / `qps` seconds, the first at the start."""
    gap_ns = _gap_ns(num_requests, qps)
    return from_gaps([0] + [round(gap_ns)] * (num_requests - 1), lengths)


def poisson(num_requests: int, *, qps: float, seed: int, lengths: Lengths | Iterable[Lengths] = Lengths()) -> Workload:
    """Let requests arrive as a Poisson process of `qps` requests a second, the first at the start."""
    return gamma(num_requests, qps=qps, cv=1.0, seed=seed, lengths=lengths)


def gamma(
    num_requests: int, *, qps: float, cv: float, seed: int, lengths: Lengths | Iterable[Lengths] = Lengths()
) -> Workload:
    """Let requests arrive with gamma-distributed gaps of coefficient of variation `cv` (1 is Poisson)."""
    gap_ns = _gap_ns(num_requests, qps)
    shape = 1.0 / require_positive("cv", cv, unit="coefficient of variation") ** 2
    draw = random.Random(require_whole("seed", seed, at_least=0, unit="steps"))
    return from_gaps([0] + [round(draw.gammavariate(shape, gap_ns / shape)) for _ in range(num_requests - 1)], lengths)


def _gap_ns(num_requests: int, qps: float) -> float:
    require_whole("num_requests", num_requests, at_least=1, unit="requests")
    return NS_PER_S / require_positive("qps", qps, unit="requests per second")
