"""Runs written by hand, a row a span, with the step of every stretch from taking a batch to its first token."""

from __future__ import annotations

from typing import Any

from impl.steps import Step, six_steps
from impl.timeline import LAUNCH, POST, PRE, SYNCHRONIZE
from tests.build import by_hand, totals

Rows = list[tuple[str, str, int, int, int]]


def steps(rows: Rows, request_id: int, **options: Any) -> dict[Step, int]:
    """Return the steps of a request; `options` are those of `by_hand`."""
    return dict(six_steps(by_hand(rows, **options)[0], request_id))


def test_on_one_thread_pre_and_launch_of_the_next_and_post_of_the_previous_have_names_and_nothing_else() -> None:
    rows = [
        ("scheduler", PRE, 0, 0, 8),
        ("scheduler", LAUNCH, 0, 8, 10),
        ("scheduler", PRE, 1, 13, 20),
        ("scheduler", LAUNCH, 1, 21, 23),
        ("scheduler", SYNCHRONIZE, 0, 23, 27),
        ("scheduler", POST, 0, 27, 32),
        ("scheduler", PRE, 2, 32, 41),
        ("scheduler", LAUNCH, 2, 41, 45),
        ("scheduler", PRE, 3, 45, 56),
        ("scheduler", LAUNCH, 3, 56, 68),
        ("scheduler", SYNCHRONIZE, 1, 68, 74),
        ("scheduler", SYNCHRONIZE, 2, 74, 75),
        ("scheduler", POST, 2, 75, 88),
        ("scheduler", POST, 1, 88, 96),
    ]
    assert steps(rows, 1, taken={1: 11}) == totals(
        (11, 13, Step.OTHER),
        (13, 20, Step.OWN_PRE),
        (20, 21, Step.OTHER),
        (21, 23, Step.OWN_LAUNCH),
        (23, 27, Step.WAIT),
        (27, 32, Step.PREVIOUS_POST),
        (32, 41, Step.NEXT_PRE),
        (41, 45, Step.NEXT_LAUNCH),
        (45, 68, Step.OTHER),  # pre and launch of the one after the next
        (68, 75, Step.WAIT),
        (75, 88, Step.OTHER),  # post of the next
        (88, 96, Step.OWN_POST),
    )


def test_on_three_threads_each_step_is_looked_up_on_the_thread_that_has_the_request() -> None:
    rows = [
        ("scheduler", PRE, 0, 0, 10),
        ("scheduler", PRE, 1, 10, 20),
        ("scheduler", PRE, 2, 20, 60),
        ("launch", LAUNCH, 0, 10, 22),
        ("launch", LAUNCH, 1, 23, 27),
        ("launch", LAUNCH, 2, 60, 62),
        ("post", SYNCHRONIZE, 0, 12, 24),
        ("post", POST, 0, 24, 33),
        ("post", SYNCHRONIZE, 1, 33, 40),
        ("post", POST, 1, 41, 55),
    ]
    assert steps(rows, 1) == totals(
        (10, 20, Step.OWN_PRE),
        (20, 22, Step.OTHER),  # launch of the previous
        (22, 23, Step.OTHER),
        (23, 27, Step.OWN_LAUNCH),
        (27, 33, Step.PREVIOUS_POST),
        (33, 40, Step.WAIT),
        (40, 41, Step.OTHER),
        (41, 55, Step.OWN_POST),
    )
    assert steps(rows, 0) == totals(
        (0, 10, Step.OWN_PRE), (10, 22, Step.OWN_LAUNCH), (22, 24, Step.WAIT), (24, 33, Step.OWN_POST)
    )


def test_of_chunks_the_last_one_counts_and_tokens_after_the_first_do_not() -> None:
    rows = [
        ("scheduler", stage, batch_id, 30 * batch_id + start, 30 * batch_id + end)
        for batch_id in range(3)
        for stage, start, end in ((PRE, 0, 4 + batch_id), (LAUNCH, 10, 12), (POST, 20, 29 - batch_id))
    ]
    assert steps(rows, 0, requests={0: (0,), 1: (0,), 2: (0,)}, first={0: 1}) == totals(
        (30, 35, Step.OWN_PRE),
        (35, 40, Step.OTHER),
        (40, 42, Step.OWN_LAUNCH),
        (42, 50, Step.OTHER),
        (50, 58, Step.OWN_POST),
    )
