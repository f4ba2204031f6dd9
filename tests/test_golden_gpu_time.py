"""Runs written by hand, a row a span, with what the GPU did in every stretch or why it did nothing."""

from __future__ import annotations

from typing import Any

import pytest

from impl.gpu_time import GpuCause, split_gpu_time
from impl.timeline import COPY, COPY_LANE, FORWARD, LAUNCH, POST, PRE, SYNCHRONIZE
from tests.build import by_hand, totals

Rows = list[tuple[str, str, int, int, int]]


def split(rows: Rows, **options: Any) -> dict[GpuCause, int]:
    """Return the parts of the window; `options` are those of `by_hand`."""
    found = split_gpu_time(*by_hand(rows, **options))
    return {cause: ns for cause, ns in found.items() if ns}


ONE_THREAD = [
    ("scheduler", PRE, 0, 0, 8),
    ("scheduler", LAUNCH, 0, 8, 10),
    ("scheduler", SYNCHRONIZE, 0, 10, 24),
    ("engine", FORWARD, 0, 10, 20),
    (COPY_LANE, COPY, 0, 20, 21),
    ("scheduler", POST, 0, 24, 26),
    ("scheduler", PRE, 1, 50, 60),
    ("scheduler", LAUNCH, 1, 62, 70),
    ("engine", FORWARD, 1, 72, 80),
    (COPY_LANE, COPY, 1, 80, 81),
    ("scheduler", POST, 1, 81, 85),
]
"""Batch 1 is taken at 37, and prepared from 50 on."""


@pytest.mark.parametrize(
    ("arrival", "gap"),
    [
        (0, [(20, 21, GpuCause.COPY), (21, 26, GpuCause.CPU), (26, 37, GpuCause.HELD), (37, 72, GpuCause.CPU)]),
        (25, [(20, 25, GpuCause.REQUESTS), (25, 26, GpuCause.CPU), (26, 37, GpuCause.HELD), (37, 72, GpuCause.CPU)]),
        (30, [(20, 30, GpuCause.REQUESTS), (30, 37, GpuCause.HELD), (37, 72, GpuCause.CPU)]),
        (37, [(20, 37, GpuCause.REQUESTS), (37, 72, GpuCause.CPU)]),
    ],
)
def test_a_gap_begins_with_want_of_requests_then_a_copy_then_work_then_waiting_on_purpose(
    arrival: int, gap: list[tuple[int, int, GpuCause]]
) -> None:
    assert split(ONE_THREAD, arrivals=[0, arrival], taken={1: 37}) == totals(
        (10, 20, GpuCause.BUSY), *gap, (72, 80, GpuCause.BUSY)
    )


@pytest.mark.parametrize(
    ("arrivals", "missing_until"), [([0, 0, 0], 20), ([0, 24, 29], 24), ([0, 29, 29], 29), ([0, 0, 29], 20)]
)
def test_of_several_requests_of_a_batch_the_first_to_arrive_counts(arrivals: list[int], missing_until: int) -> None:
    rows = [
        ("scheduler", PRE, 0, 0, 9),
        ("scheduler", LAUNCH, 0, 9, 10),
        ("engine", FORWARD, 0, 10, 20),
        (COPY_LANE, COPY, 0, 20, 21),
        ("scheduler", POST, 0, 20, 30),
        ("scheduler", PRE, 1, 30, 34),
        ("scheduler", LAUNCH, 1, 34, 35),
        ("engine", FORWARD, 1, 35, 40),
    ]
    assert split(rows, arrivals=arrivals, requests={1: (1, 2)}) == totals(
        (10, 20, GpuCause.BUSY),
        (20, missing_until, GpuCause.REQUESTS),
        (missing_until, 35, GpuCause.CPU),
        (35, 40, GpuCause.BUSY),
    )


def test_a_request_of_an_earlier_forward_is_there_for_the_next_one() -> None:
    rows = [
        ("scheduler", PRE, 0, 0, 9),
        ("scheduler", LAUNCH, 0, 9, 10),
        ("engine", FORWARD, 0, 10, 20),
        (COPY_LANE, COPY, 0, 20, 21),
        ("scheduler", PRE, 1, 20, 28),
        ("scheduler", LAUNCH, 1, 28, 30),
        ("engine", FORWARD, 1, 30, 40),
    ]
    late = split(rows, arrivals=[0, 26], requests={1: (0, 1)})
    assert late == totals((10, 20, GpuCause.BUSY), (20, 30, GpuCause.CPU), (30, 40, GpuCause.BUSY))


def test_a_thread_inside_the_launch_of_another_batch_is_a_missing_launch_slot_once_requests_are_there() -> None:
    rows = [
        ("scheduler", PRE, 0, 0, 10),
        ("launch", LAUNCH, 0, 10, 33),
        ("engine", FORWARD, 0, 12, 20),
        (COPY_LANE, COPY, 0, 20, 21),
        ("scheduler", PRE, 1, 29, 31),
        ("launch", LAUNCH, 1, 35, 38),
        ("engine", FORWARD, 1, 40, 45),
    ]
    assert split(rows, arrivals=[0, 24], taken={1: 27}) == totals(
        (12, 20, GpuCause.BUSY),
        (20, 24, GpuCause.REQUESTS),
        (24, 33, GpuCause.LAUNCH_SLOT),
        (33, 40, GpuCause.CPU),  # a hand-off, then its own launch
        (40, 45, GpuCause.BUSY),
    )


@pytest.mark.parametrize(
    ("copying", "gap"),
    [
        ("engine", [(20, 22, GpuCause.CPU), (22, 27, GpuCause.COPY), (27, 30, GpuCause.CPU)]),
        (COPY_LANE, [(20, 30, GpuCause.CPU)]),
    ],
)
def test_behind_a_launch_only_a_copy_on_the_forwards_own_stream_is_in_the_way(
    copying: str, gap: list[tuple[int, int, GpuCause]]
) -> None:
    rows = [
        ("scheduler", PRE, 0, 0, 9),
        ("scheduler", LAUNCH, 0, 9, 10),
        ("engine", FORWARD, 0, 10, 20),
        (copying, COPY, 0, 22, 27),
        ("scheduler", PRE, 1, 10, 14),
        ("scheduler", LAUNCH, 1, 14, 15),
        ("scheduler", SYNCHRONIZE, 0, 15, 28),
        ("engine", FORWARD, 1, 30, 40),
    ]
    assert split(rows) == totals((10, 20, GpuCause.BUSY), *gap, (30, 40, GpuCause.BUSY))


def waiting(preparing: Rows, launching: Rows, *, taken: int) -> dict[GpuCause, int]:
    """Split a gap from 20 to 40; the copy of batch 0 ends at 27, batch 1 is launched at 35."""
    rows = [
        ("scheduler", PRE, 0, 0, 9),
        ("launch", LAUNCH, 0, 9, 10),
        ("engine", FORWARD, 0, 10, 20),
        (COPY_LANE, COPY, 0, 20, 27),
        ("launch", LAUNCH, 1, 35, 40),
        ("engine", FORWARD, 1, 40, 45),
    ]
    return split([*rows, *preparing, *launching], taken={1: taken})


WAIT = (SYNCHRONIZE, 0, 10, 29)


@pytest.mark.parametrize(
    ("preparing", "launching", "taken", "gap"),
    [
        ([("scheduler", PRE, 1, 12, 34)], [], 12, [(20, 40, GpuCause.CPU)]),
        ([("scheduler", PRE, 1, 12, 34)], [("launch", *WAIT)], 12, [(20, 27, GpuCause.COPY), (27, 40, GpuCause.CPU)]),
        (
            [("scheduler", *WAIT), ("scheduler", PRE, 1, 30, 34)],
            [],
            30,
            [(20, 27, GpuCause.COPY), (27, 29, GpuCause.CPU), (29, 30, GpuCause.HELD), (30, 40, GpuCause.CPU)],
        ),
        (
            [("scheduler", PRE, 1, 30, 34)],
            [("launch", *WAIT)],
            23,
            [(20, 23, GpuCause.HELD), (23, 27, GpuCause.COPY), (27, 40, GpuCause.CPU)],
        ),
        (
            [("scheduler", POST, 0, 19, 26), ("scheduler", PRE, 1, 30, 34)],
            [],
            30,
            [(20, 26, GpuCause.CPU), (26, 30, GpuCause.HELD), (30, 40, GpuCause.CPU)],
        ),
    ],
    ids=["nobody waits", "launching thread", "preparing thread", "held back first", "a post, then held back"],
)
def test_ahead_of_a_launch_either_thread_may_wait_for_a_copy(
    preparing: Rows, launching: Rows, taken: int, gap: list[tuple[int, int, GpuCause]]
) -> None:
    assert waiting(preparing, launching, taken=taken) == totals((10, 20, GpuCause.BUSY), *gap, (40, 45, GpuCause.BUSY))


def test_forwards_that_overlap_are_united_and_of_two_that_start_together_the_first_counts() -> None:
    rows = [
        ("scheduler", PRE, 0, 0, 4),
        ("scheduler", LAUNCH, 0, 4, 5),
        ("engine", FORWARD, 0, 10, 20),
        (COPY_LANE, COPY, 0, 20, 21),
        ("scheduler", PRE, 1, 5, 8),
        ("scheduler", LAUNCH, 1, 8, 9),
        ("second", FORWARD, 1, 15, 24),
        (COPY_LANE, COPY, 1, 24, 25),
        ("scheduler", PRE, 2, 24, 28),
        ("scheduler", LAUNCH, 2, 28, 40),
        ("worker", PRE, 3, 28, 29),
        ("worker", LAUNCH, 3, 29, 30),
        ("engine", FORWARD, 2, 40, 50),
        ("second", FORWARD, 3, 40, 53),
    ]
    assert split(rows, arrivals=[0, 0, 0, 28]) == totals(
        (10, 24, GpuCause.BUSY), (24, 40, GpuCause.CPU), (40, 53, GpuCause.BUSY)
    )
