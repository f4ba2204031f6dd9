from __future__ import annotations

import pytest

from impl.batching import Continuous
from impl.ledger import Outcome
from impl.metrics import Metrics, measure, percentile
from impl.schedulers import SCHEDULERS
from impl.timeline import FORWARD, LAUNCH, Delivery, Span, Taken, Timeline
from impl.workload import Lengths, burst, from_gaps
from tests.build import MS, attempt, scenario, stages


@pytest.mark.parametrize(("share", "needed"), [(0.5, 7), (0.9, 44), (0.99, 459)])
def test_a_percentile_needs_a_sample_that_reaches_beyond_it(share: float, needed: int) -> None:
    assert share**needed <= 0.01 < share ** (needed - 1)
    assert percentile(range(needed - 1), share) is None
    assert percentile(range(needed), share) is not None


def test_a_percentile_is_the_nearest_rank_of_any_order() -> None:
    assert percentile([9, 1, 8, 2, 7, 3, 6, 4, 5, 10], 0.5) == 5
    assert percentile(list(range(100, 0, -1)), 0.9) == 90
    assert percentile([4] * 500, 0.99) == 4


def made(*forwards: tuple[int, int], launched: tuple[int, ...] | None = None) -> Metrics:
    """Measure a hand-made timeline: each forward (start, end) serves one request of a burst and delivers at its end."""
    timeline = Timeline(start_ns=1000)
    for index, (start_ns, end_ns) in enumerate(forwards):
        launch_ns = 1000 + (launched[index] if launched else start_ns)
        timeline.taken.append(Taken(index, 1000, 1, (index,)))
        timeline.spans.append(Span("scheduler", LAUNCH, index, launch_ns, launch_ns))
        timeline.spans.append(Span("engine", FORWARD, index, 1000 + start_ns, 1000 + end_ns))
        timeline.deliveries.append(Delivery(index, 0, index, 1000 + end_ns, Outcome.ENDED))
    return measure(timeline, burst(len(forwards)))


def test_idle_share_counts_time_without_any_forward_once() -> None:
    assert made((0, 10), (10, 20)).summary.gpu_idle_share == 0
    assert made((0, 10), (15, 20)).summary.gpu_idle_share == pytest.approx(5 / 20)
    assert made((0, 10), (4, 12)).summary.gpu_idle_share == 0, "overlapping forwards are united"
    assert made((0, 20), (5, 10), (30, 40)).summary.gpu_idle_share == pytest.approx(10 / 40), "one inside another"
    assert made((5, 5)).summary.gpu_idle_share == 0, "a window of no length"


def test_launch_lead_is_the_share_of_launches_before_the_previous_end() -> None:
    assert made((0, 10), (10, 20), (25, 30), launched=(0, 5, 22)).summary.launch_lead == 0.5
    assert made((0, 10)).summary.launch_lead is None


def test_times_count_from_the_start_of_the_run() -> None:
    metrics = made((0, 10), (10, 30))
    assert [request.ttft_ns for request in metrics.requests] == [10, 30]
    assert metrics.summary.total_ns == 30
    assert metrics.summary.ttft_max_ns == 30
    assert metrics.summary.ttft_mean_ns == 20
    assert metrics.summary.ttft_p50_ns is None, "two requests have no median to trust"
    assert metrics.summary.throughput_rps == pytest.approx(2e9 / 30)
    assert made((0, 0)).summary.throughput_rps is None


def test_waiting_and_service_add_up_to_ttft() -> None:
    served = scenario(from_gaps([0, 2 * MS]), costs=stages(1, 5, 1))
    first, second = attempt(SCHEDULERS["normal"], served).metrics.requests
    assert (first.queue_wait_ns, first.service_ttft_ns, first.ttft_ns) == (0, 7 * MS, 7 * MS)
    assert (second.queue_wait_ns, second.service_ttft_ns, second.ttft_ns) == (5 * MS, 7 * MS, 12 * MS)


def test_time_between_tokens_is_a_step_of_decode() -> None:
    served = scenario(burst(1, Lengths(max_output_tokens=4)), Continuous(4, 100), stages(1, 5, 1))
    metrics = attempt(SCHEDULERS["normal"], served).metrics
    assert metrics.requests[0].inter_token_ns == (7 * MS,) * 3
    assert metrics.summary.itl_mean_ns == metrics.summary.itl_max_ns == 7 * MS
    assert attempt(SCHEDULERS["normal"]).metrics.summary.itl_mean_ns is None


def test_surplus_forwards_count_as_forwards_and_their_tokens_as_surplus() -> None:
    served = scenario(burst(1, Lengths(max_output_tokens=9, stop_after=2)), Continuous(4, 100))
    summary = attempt(SCHEDULERS["overlap"], served).metrics.summary
    assert (summary.num_forwards, summary.num_surplus_tokens) == (3, 1)
    summary = attempt(SCHEDULERS["normal"], served).metrics.summary
    assert (summary.num_forwards, summary.num_surplus_tokens) == (2, 0)
