"""Runs written by hand, a row a span, with the cause of every stretch of every TTFT."""

from __future__ import annotations

from typing import Any

import pytest

from impl.attribution import Attribution, Cause, attribute, mean_by_cause
from impl.timeline import COPY, COPY_LANE, FORWARD, LAUNCH, POST, PRE, SYNCHRONIZE
from tests.build import by_hand, totals

Rows = list[tuple[str, str, int, int, int]]


def parts(rows: Rows, *, num_requests: int = 1, **options: Any) -> list[dict[Cause, int]]:
    """Return the causes of each request; `options` are those of `by_hand`."""
    arrivals = options.pop("arrivals", [0] * num_requests)
    found = attribute(*by_hand(rows, arrivals=arrivals, **options))
    assert [each.request_id for each in found] == list(range(len(arrivals)))
    assert [each.ttft_ns for each in found] == [sum(each.parts.values()) for each in found]
    return [{cause: ns for cause, ns in each.parts.items() if ns} for each in found]


def test_every_step_of_its_own_has_a_name_and_so_has_every_pause_between_two() -> None:
    rows = [
        ("scheduler", PRE, 0, 5, 15),
        ("scheduler", LAUNCH, 0, 17, 20),
        ("scheduler", SYNCHRONIZE, 0, 20, 49),
        ("engine", FORWARD, 0, 22, 40),
        (COPY_LANE, COPY, 0, 43, 47),
        ("scheduler", POST, 0, 52, 62),
    ]
    assert parts(rows, arrivals=[1], taken={0: 3}) == [
        totals(
            (1, 3, Cause.QUEUE),
            (3, 5, Cause.HELD),
            (5, 15, Cause.OWN_PRE),
            (15, 17, Cause.HELD),
            (17, 20, Cause.OWN_LAUNCH),
            (20, 22, Cause.UNEXPLAINED),
            (22, 40, Cause.OWN_FORWARD),
            (40, 43, Cause.EARLIER_COPIES),
            (43, 47, Cause.OWN_COPY),
            (47, 49, Cause.HAND_OFF),  # the thread wakes up
            (49, 52, Cause.HELD),
            (52, 62, Cause.OWN_POST),
        )
    ]


@pytest.mark.parametrize(
    ("lanes", "before_launch", "before_post"),
    [
        (("scheduler", "scheduler", "scheduler"), Cause.HELD, Cause.HELD),
        (("scheduler", "launch", "launch"), Cause.HAND_OFF, Cause.HELD),
        (("scheduler", "scheduler", "post"), Cause.HELD, Cause.HAND_OFF),
        (("scheduler", "launch", "post"), Cause.HAND_OFF, Cause.HAND_OFF),
        (("scheduler", "launch", "scheduler"), Cause.HAND_OFF, Cause.HAND_OFF),
    ],
)
def test_work_is_handed_off_to_another_thread_and_held_back_by_its_own(
    lanes: tuple[str, str, str], before_launch: Cause, before_post: Cause
) -> None:
    preparing, launching, posting = lanes
    rows = [
        (preparing, PRE, 0, 4, 10),
        (launching, LAUNCH, 0, 17, 20),
        ("engine", FORWARD, 0, 20, 30),
        (COPY_LANE, COPY, 0, 30, 31),
        (posting, POST, 0, 42, 50),
    ]
    assert parts(rows, taken={0: 2}) == [
        totals(
            (0, 2, Cause.QUEUE),
            (2, 4, Cause.HELD),
            (4, 10, Cause.OWN_PRE),
            (10, 17, before_launch),
            (17, 20, Cause.OWN_LAUNCH),
            (20, 30, Cause.OWN_FORWARD),
            (30, 31, Cause.OWN_COPY),
            (31, 42, before_post),
            (42, 50, Cause.OWN_POST),
        )
    ]


@pytest.mark.parametrize(("posting", "before_post"), [("scheduler", Cause.HELD), ("post", Cause.HAND_OFF)])
def test_a_launch_that_returns_after_its_own_forward_and_copy_is_hidden_only_by_them(
    posting: str, before_post: Cause
) -> None:
    rows = [
        ("scheduler", PRE, 0, 0, 10),
        ("scheduler", LAUNCH, 0, 10, 50),
        ("engine", FORWARD, 0, 15, 30),
        (COPY_LANE, COPY, 0, 30, 32),
        (posting, POST, 0, 57, 60),
    ]
    assert parts(rows) == [
        totals(
            (0, 10, Cause.OWN_PRE),
            (10, 15, Cause.OWN_LAUNCH),
            (15, 30, Cause.OWN_FORWARD),
            (30, 32, Cause.OWN_COPY),
            (32, 50, Cause.OWN_LAUNCH),  # it blocked
            (50, 57, before_post),
            (57, 60, Cause.OWN_POST),
        )
    ]


@pytest.mark.parametrize(
    ("copying", "held_up"),
    [
        ("engine", [(36, 40, Cause.EARLIER_FORWARDS), (40, 43, Cause.EARLIER_COPIES), (43, 47, Cause.OWN_LAUNCH)]),
        (COPY_LANE, [(36, 40, Cause.EARLIER_FORWARDS), (40, 47, Cause.OWN_LAUNCH)]),
    ],
)
def test_a_copy_stands_in_a_forwards_way_only_on_the_forwards_own_stream(
    copying: str, held_up: list[tuple[int, int, Cause]]
) -> None:
    rows = [
        ("scheduler", PRE, 0, 0, 10),
        ("scheduler", LAUNCH, 0, 10, 12),
        ("engine", FORWARD, 0, 12, 40),
        (copying, COPY, 0, 40, 43),
        ("scheduler", PRE, 1, 12, 36),
        ("scheduler", LAUNCH, 1, 36, 47),
        ("engine", FORWARD, 1, 47, 60),
        (copying, COPY, 1, 60, 62),
        ("scheduler", POST, 0, 47, 55),
        ("scheduler", POST, 1, 62, 66),
    ]
    assert parts(rows, num_requests=2) == [
        totals(
            (0, 10, Cause.OWN_PRE),
            (10, 12, Cause.OWN_LAUNCH),
            (12, 40, Cause.OWN_FORWARD),
            (40, 43, Cause.OWN_COPY),
            (43, 47, Cause.INSERTED_LAUNCH),
            (47, 55, Cause.OWN_POST),
        ),
        totals(
            (0, 12, Cause.QUEUE),
            (12, 36, Cause.OWN_PRE),
            *held_up,
            (47, 60, Cause.OWN_FORWARD),
            (60, 62, Cause.OWN_COPY),
            (62, 66, Cause.OWN_POST),
        ),
    ]


def test_a_copy_that_waits_for_the_copy_engine_is_behind_earlier_copies() -> None:
    rows = [
        ("scheduler", PRE, 0, 0, 5),
        ("scheduler", LAUNCH, 0, 5, 6),
        ("engine", FORWARD, 0, 6, 20),
        (COPY_LANE, COPY, 0, 20, 40),
        ("scheduler", PRE, 1, 6, 11),
        ("scheduler", LAUNCH, 1, 11, 12),
        ("engine", FORWARD, 1, 20, 27),
        (COPY_LANE, COPY, 1, 40, 45),
        ("scheduler", PRE, 2, 12, 15),
        ("scheduler", LAUNCH, 2, 15, 16),
        ("engine", FORWARD, 2, 27, 35),
        (COPY_LANE, COPY, 2, 45, 50),
        ("scheduler", POST, 0, 40, 43),
        ("scheduler", POST, 1, 45, 49),
        ("scheduler", POST, 2, 50, 51),
    ]
    assert parts(rows, num_requests=3)[1] == totals(
        (0, 6, Cause.QUEUE),
        (6, 11, Cause.OWN_PRE),
        (11, 20, Cause.EARLIER_FORWARDS),
        (20, 27, Cause.OWN_FORWARD),
        (27, 40, Cause.EARLIER_COPIES),
        (40, 45, Cause.OWN_COPY),
        (45, 49, Cause.OWN_POST),
    )


def test_a_thread_that_waits_for_another_batch_waits_for_its_forward_then_its_copy_then_wakes_up() -> None:
    rows = [
        ("scheduler", PRE, 0, 0, 10),
        ("scheduler", LAUNCH, 0, 10, 12),
        ("scheduler", SYNCHRONIZE, 0, 12, 48),
        ("engine", FORWARD, 0, 12, 40),
        (COPY_LANE, COPY, 0, 40, 45),
        ("scheduler", POST, 0, 48, 57),
        ("scheduler", PRE, 1, 57, 70),
        ("scheduler", LAUNCH, 1, 70, 71),
        ("engine", FORWARD, 1, 71, 80),
        (COPY_LANE, COPY, 1, 80, 81),
        ("scheduler", POST, 1, 81, 88),
    ]
    assert parts(rows, arrivals=[0, 8], taken={1: 12})[1] == totals(
        (8, 12, Cause.QUEUE),
        (12, 40, Cause.EARLIER_FORWARDS),
        (40, 45, Cause.EARLIER_COPIES),
        (45, 48, Cause.HAND_OFF),
        (48, 57, Cause.INSERTED_POST),
        (57, 70, Cause.OWN_PRE),
        (70, 71, Cause.OWN_LAUNCH),
        (71, 80, Cause.OWN_FORWARD),
        (80, 81, Cause.OWN_COPY),
        (81, 88, Cause.OWN_POST),
    )


def test_pre_launch_and_post_of_others_are_inserted_where_no_forward_hides_them() -> None:
    rows = [
        ("scheduler", PRE, 0, 0, 4),
        ("scheduler", LAUNCH, 0, 4, 5),
        ("engine", FORWARD, 0, 5, 7),
        (COPY_LANE, COPY, 0, 7, 8),
        ("scheduler", PRE, 1, 5, 9),
        ("scheduler", LAUNCH, 1, 9, 11),
        ("engine", FORWARD, 1, 11, 14),
        (COPY_LANE, COPY, 1, 14, 15),
        ("scheduler", POST, 0, 11, 19),
        ("scheduler", PRE, 2, 19, 25),
        ("scheduler", LAUNCH, 2, 25, 30),
        ("engine", FORWARD, 2, 30, 40),
        (COPY_LANE, COPY, 2, 40, 41),
        ("scheduler", POST, 1, 30, 41),
        ("scheduler", POST, 2, 41, 48),
    ]
    assert parts(rows, arrivals=[0, 2, 10]) == [
        totals(
            (0, 4, Cause.OWN_PRE),
            (4, 5, Cause.OWN_LAUNCH),
            (5, 7, Cause.OWN_FORWARD),
            (7, 8, Cause.OWN_COPY),
            (8, 9, Cause.INSERTED_PRE),
            (9, 11, Cause.INSERTED_LAUNCH),
            (11, 19, Cause.OWN_POST),
        ),
        totals(
            (2, 5, Cause.QUEUE),
            (5, 9, Cause.OWN_PRE),
            (9, 11, Cause.OWN_LAUNCH),
            (11, 14, Cause.OWN_FORWARD),
            (14, 15, Cause.OWN_COPY),
            (15, 19, Cause.INSERTED_POST),
            (19, 25, Cause.INSERTED_PRE),
            (25, 30, Cause.INSERTED_LAUNCH),
            (30, 41, Cause.OWN_POST),
        ),
        totals(
            (10, 19, Cause.QUEUE),
            (19, 25, Cause.OWN_PRE),
            (25, 30, Cause.OWN_LAUNCH),
            (30, 40, Cause.OWN_FORWARD),
            (40, 41, Cause.OWN_COPY),
            (41, 48, Cause.OWN_POST),
        ),
    ]


def test_between_pre_and_launch_the_launching_thread_is_to_blame_though_an_earlier_forward_runs() -> None:
    """Forwards run back to back, and copies take no time."""
    rows = [
        ("scheduler", PRE, 0, 0, 5),
        ("scheduler", LAUNCH, 0, 5, 6),
        ("engine", FORWARD, 0, 6, 40),
        (COPY_LANE, COPY, 0, 40, 40),
        ("scheduler", PRE, 1, 6, 16),
        ("scheduler", PRE, 2, 16, 23),
        ("scheduler", LAUNCH, 1, 27, 29),
        ("scheduler", LAUNCH, 2, 29, 30),
        ("engine", FORWARD, 1, 40, 50),
        (COPY_LANE, COPY, 1, 50, 50),
        ("engine", FORWARD, 2, 50, 60),
        (COPY_LANE, COPY, 2, 60, 60),
        ("scheduler", POST, 0, 43, 45),
        ("scheduler", POST, 1, 50, 58),
        ("scheduler", POST, 2, 60, 61),
    ]
    assert parts(rows, num_requests=3)[1] == totals(
        (0, 6, Cause.QUEUE),
        (6, 16, Cause.OWN_PRE),
        (16, 23, Cause.INSERTED_PRE),
        (23, 27, Cause.HELD),
        (27, 40, Cause.EARLIER_FORWARDS),
        (40, 50, Cause.OWN_FORWARD),
        (50, 58, Cause.OWN_POST),
    )


def test_what_is_done_for_an_earlier_chunk_is_its_own_and_for_a_later_token_inserted() -> None:
    """Request 0 is prefilled in batches 0 and 1; batch 3 decodes its second token."""
    rows = [
        ("scheduler", PRE, 0, 0, 5),
        ("scheduler", LAUNCH, 0, 5, 6),
        ("scheduler", SYNCHRONIZE, 0, 6, 24),
        ("engine", FORWARD, 0, 6, 20),
        (COPY_LANE, COPY, 0, 20, 22),
        ("scheduler", POST, 0, 24, 27),
        ("scheduler", PRE, 1, 27, 31),
        ("scheduler", LAUNCH, 1, 31, 32),
        ("engine", FORWARD, 1, 32, 40),
        (COPY_LANE, COPY, 1, 40, 41),
        ("scheduler", PRE, 2, 32, 38),
        ("scheduler", LAUNCH, 2, 38, 39),
        ("engine", FORWARD, 2, 40, 50),
        (COPY_LANE, COPY, 2, 50, 51),
        ("scheduler", PRE, 3, 39, 47),
        ("scheduler", POST, 1, 47, 49),
        ("scheduler", POST, 2, 51, 52),
        ("scheduler", LAUNCH, 3, 52, 53),
        ("engine", FORWARD, 3, 53, 60),
        (COPY_LANE, COPY, 3, 60, 61),
        ("scheduler", POST, 3, 61, 62),
    ]
    chunks = {0: (0,), 1: (0,), 2: (1,), 3: (0,)}
    assert parts(rows, num_requests=2, requests=chunks, first={0: 1})[0] == totals(
        (0, 5, Cause.OWN_PRE),
        (5, 6, Cause.OWN_LAUNCH),
        (6, 20, Cause.OWN_FORWARD),
        (20, 22, Cause.OWN_COPY),
        (22, 24, Cause.HAND_OFF),
        (24, 27, Cause.OWN_POST),
        (27, 31, Cause.OWN_PRE),
        (31, 32, Cause.OWN_LAUNCH),
        (32, 40, Cause.OWN_FORWARD),
        (40, 41, Cause.OWN_COPY),
        (41, 47, Cause.INSERTED_PRE),
        (47, 49, Cause.OWN_POST),
    )


def test_a_chunks_forward_hides_the_preparation_of_the_next_chunk() -> None:
    rows = [
        ("scheduler", PRE, 0, 0, 5),
        ("scheduler", LAUNCH, 0, 5, 6),
        ("engine", FORWARD, 0, 6, 20),
        (COPY_LANE, COPY, 0, 20, 21),
        ("scheduler", PRE, 1, 6, 10),
        ("scheduler", LAUNCH, 1, 10, 11),
        ("engine", FORWARD, 1, 20, 30),
        (COPY_LANE, COPY, 1, 30, 31),
        ("scheduler", POST, 0, 21, 33),
        ("scheduler", POST, 1, 33, 38),
    ]
    assert parts(rows, requests={0: (0,), 1: (0,)}) == [
        totals(
            (0, 5, Cause.OWN_PRE),
            (5, 6, Cause.OWN_LAUNCH),
            (6, 30, Cause.OWN_FORWARD),
            (30, 31, Cause.OWN_COPY),
            (31, 33, Cause.OWN_POST),  # of the first chunk
            (33, 38, Cause.OWN_POST),
        )
    ]


def test_a_wait_for_the_gil_counts_on_the_thread_of_the_next_step_and_not_behind_a_forward() -> None:
    rows = [
        ("scheduler", PRE, 0, 0, 10),
        ("launch", LAUNCH, 0, 12, 22),
        ("engine", FORWARD, 0, 18, 30),
        (COPY_LANE, COPY, 0, 30, 31),
        ("post", POST, 0, 33, 40),
    ]
    waits = [
        ("scheduler", 2, 5),
        ("launch", 6, 8),
        ("launch", 10, 12),
        ("scheduler", 13, 15),
        ("launch", 19, 20),
        ("post", 31, 33),
        ("post", 35, 36),
    ]
    assert parts(rows, locks=waits) == [
        totals(
            (0, 2, Cause.OWN_PRE),
            (2, 5, Cause.LOCK),
            (5, 10, Cause.OWN_PRE),
            (10, 12, Cause.LOCK),
            (12, 18, Cause.OWN_LAUNCH),
            (18, 30, Cause.OWN_FORWARD),
            (30, 31, Cause.OWN_COPY),
            (31, 33, Cause.LOCK),
            (33, 35, Cause.OWN_POST),
            (35, 36, Cause.LOCK),
            (36, 40, Cause.OWN_POST),
        )
    ]


def test_a_mean_is_over_all_requests_in_the_order_of_causes() -> None:
    found = [Attribution(0, 25, {Cause.OWN_PRE: 20, Cause.QUEUE: 5}), Attribution(1, 10, {Cause.QUEUE: 10})]
    assert list(mean_by_cause(found).items()) == [(Cause.QUEUE, 7.5), (Cause.OWN_PRE, 10.0)]
