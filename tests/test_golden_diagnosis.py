"""Runs of two forwards written by hand, and the rule that each falls under; just over and just under every bound.

Times are microseconds. The first forward runs from 100 to 1100, so two ends within 50 are the same moment, and a launch
may keep the host for 750.
"""

from __future__ import annotations

from typing import Any

import pytest

from impl.diagnosis import Diagnosis, Finding, diagnose
from impl.timeline import COPY, COPY_LANE, FORWARD, LAUNCH, POST, PRE, SYNCHRONIZE
from tests.build import by_hand

Step = tuple[str, int, int]
"""Lane, start and end."""

WAITED = ("post", 100, 1100)
"""Another thread waits for the first forward, and post-processes it."""
POSTED = ("post", 1100, 1120)


def found(
    pre: Step,
    launch: Step,
    forward: int,
    *,
    synchronize: Step = WAITED,
    post: Step = POSTED,
    first_launch: Step = ("scheduler", 90, 100),
    copy: Step = (COPY_LANE, 1100, 1101),
    more: tuple[tuple[str, str, int, int, int], ...] = (),
    **options: Any,
) -> Diagnosis:
    """Diagnose two forwards, of which the second one is told; it begins at `forward` and takes 1000 too."""
    first = {LAUNCH: first_launch, SYNCHRONIZE: synchronize, COPY: copy, POST: post, PRE: ("scheduler", 80, 90)}
    second = {PRE: pre, LAUNCH: launch, FORWARD: ("engine", forward, forward + 1000)}
    first[FORWARD] = ("engine", 100, 1100)
    rows = [(lane, stage, 0, start, end) for stage, (lane, start, end) in first.items()]
    rows += [(lane, stage, 1, start, end) for stage, (lane, start, end) in second.items()]
    return diagnose(*by_hand([*rows, *more], unit_ns=1000, **options))


def one(finding: Finding, where: str | None = None) -> Diagnosis:
    return Diagnosis(finding, 1, 1, where)


ON = Diagnosis(Finding.ON, 0, 1, None)
NO_REQUESTS = Diagnosis(Finding.NO_REQUESTS, 0, 0, None)


@pytest.mark.parametrize(
    ("start", "end", "forward", "expected"),
    [
        (335, 1085, 1100, ON),  # keeps the host for no more than it may
        (334, 1085, 1100, one(Finding.BLOCKING_COPY, "scheduler.py:launch")),
        (200, 1079, 1100, ON),  # a blocking call could not have returned so early, by more than two clocks differ
        (200, 1080, 1100, one(Finding.BLOCKING_COPY, "scheduler.py:launch")),
        (200, 1150, 1160, one(Finding.BLOCKING_COPY, "scheduler.py:launch")),
        (200, 1151, 1160, one(Finding.CPU_LONGER)),  # it only worked for longer
        (200, 1160, 1160, one(Finding.CPU_LONGER)),
        (200, 1161, 1160, one(Finding.QUEUE_FULL, "scheduler.py:launch")),
        (200, 1201, 1200, one(Finding.QUEUE_FULL, "scheduler.py:launch")),
        (200, 1251, 1201, one(Finding.CPU_LONGER)),  # the GPU was idle: its queue had room until the forward began
        (200, 1252, 1201, one(Finding.QUEUE_FULL, "scheduler.py:launch")),
        (200, 1120, 1109, one(Finding.QUEUE_FULL, "scheduler.py:launch")),  # back to back: it had been enqueued
        (200, 1120, 1110, one(Finding.BLOCKING_COPY, "scheduler.py:launch")),
        (200, 1109, 1109, one(Finding.BLOCKING_COPY, "scheduler.py:launch")),
        (400, 1150, 1100, ON),  # 700 of the first forward and 50 of its own
        (400, 1151, 1100, one(Finding.QUEUE_FULL, "scheduler.py:launch")),
        (1100, 1850, 1100, ON),
        (1100, 2099, 1100, one(Finding.QUEUE_FULL, "scheduler.py:launch")),
        (1100, 2100, 1100, one(Finding.WAITS_INSIDE_LAUNCH, "scheduler.py:launch")),
        (1100, 2150, 1100, one(Finding.WAITS_INSIDE_LAUNCH, "scheduler.py:launch")),
        (1100, 2151, 1100, one(Finding.CPU_LONGER)),  # long after its forward: nothing was waited for
    ],
)
def test_what_a_launch_waits_for_shows_in_when_it_returns(
    start: int, end: int, forward: int, expected: Diagnosis
) -> None:
    assert found(("scheduler", 150, 160), ("scheduler", start, end), forward) == expected


@pytest.mark.parametrize(
    ("post_until", "locks", "finding"),
    [
        (650, [("post", 1, 2)], Finding.BLOCKING_COPY),
        (651, [("post", 1, 2)], Finding.LOCK),
        (651, [], Finding.BLOCKING_COPY),
    ],
)
def test_a_long_launch_wants_the_gil_if_other_threads_work_for_more_than_half_of_it(
    post_until: int, locks: list[Step], finding: Finding
) -> None:
    """The launch goes on from 200 to 1100, half of which is 450."""
    busy = found(
        ("scheduler", 150, 160),
        ("scheduler", 200, 1100),
        1100,
        more=(("post", POST, 2, 150, post_until), ("post", SYNCHRONIZE, 3, 651, 1100)),
        post=("post", 2200, 2300),
        locks=locks,
    )
    assert busy == one(finding, "scheduler.py:launch")


def normal(**options: Any) -> Diagnosis:
    """Diagnose a host that waits for the first forward until 1100, and prepares the next one for 20."""
    step = {"synchronize": ("scheduler", 110, 1100), "post": ("scheduler", 1100, 1110)} | options
    return found(("scheduler", 1110, 1130), ("scheduler", 1150, 1160), 1160, **step)


SYNCHRONIZES = one(Finding.SYNCHRONIZES, "scheduler.py:synchronize")


def test_a_host_that_waits_before_it_prepares_synchronizes_if_a_request_was_there() -> None:
    assert normal() == SYNCHRONIZES
    assert normal(arrivals=[0, 1080]) == SYNCHRONIZES, "in time for 20 of pre"
    assert normal(arrivals=[0, 1081]) == NO_REQUESTS, "too late for 20 of pre"
    assert normal(arrivals=[0, 1080, 1081], requests={1: (2, 1)}) == SYNCHRONIZES, "one of two in time"
    assert normal(empty={1: 89}) == SYNCHRONIZES, "asked in vain before the last pre ended"
    assert normal(empty={1: 90}) == NO_REQUESTS, "asked in vain afterwards"


def test_it_synchronizes_only_if_it_waits_on_the_preparing_thread_and_until_the_forward_is_over() -> None:
    late = one(Finding.HELD_BACK)
    assert normal(synchronize=("scheduler", 1050, 1100)) == late, "not awaited: it was done when it was asked for"
    assert normal(synchronize=("scheduler", 1049, 1100)) == SYNCHRONIZES
    assert normal(synchronize=("post", 110, 1100)) == late
    assert normal(synchronize=("scheduler", 110, 1111)) == late, "it goes on while the next batch is prepared"
    assert normal(synchronize=("scheduler", 110, 1110)) == SYNCHRONIZES


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [("worker", one(Finding.SYNCHRONIZES, "worker.py:synchronize")), ("scheduler", one(Finding.HELD_BACK))],
)
def test_of_two_threads_it_is_the_preparing_one_that_must_not_wait(waiting: str, expected: Diagnosis) -> None:
    late = found(("worker", 1110, 1130), ("scheduler", 1150, 1160), 1160, synchronize=(waiting, 110, 1100), post=POSTED)
    assert late == expected


LATER = ("scheduler", 1160, 1170)
"""A post behind the launch of the next batch."""


@pytest.mark.parametrize(
    ("launching", "synchronize", "post", "expected"),
    [
        ("scheduler", ("scheduler", 220, 1100), LATER, one(Finding.WAITS_BEFORE_LAUNCH, "scheduler.py:synchronize")),
        ("scheduler", ("scheduler", 219, 1100), LATER, one(Finding.HELD_BACK)),
        ("scheduler", ("scheduler", 220, 1150), LATER, one(Finding.WAITS_BEFORE_LAUNCH, "scheduler.py:synchronize")),
        ("scheduler", ("scheduler", 220, 1151), LATER, one(Finding.HELD_BACK)),
        ("scheduler", ("scheduler", 1050, 1100), LATER, one(Finding.HELD_BACK)),  # it did not have to wait
        ("launch", ("launch", 220, 1100), LATER, one(Finding.WAITS_BEFORE_LAUNCH, "launch.py:synchronize")),
        ("launch", ("scheduler", 220, 1100), LATER, one(Finding.HELD_BACK)),
        (
            "scheduler",
            ("scheduler", 220, 1100),
            ("scheduler", 1100, 1120),
            one(Finding.POST_FIRST, "scheduler.py:post"),
        ),
        ("scheduler", WAITED, ("scheduler", 1100, 1150), one(Finding.POST_FIRST, "scheduler.py:post")),
        ("scheduler", WAITED, ("scheduler", 1100, 1151), one(Finding.HELD_BACK)),
        ("scheduler", WAITED, ("post", 1100, 1120), one(Finding.HELD_BACK)),
        ("launch", WAITED, ("launch", 1100, 1120), one(Finding.POST_FIRST, "launch.py:post")),
        ("launch", WAITED, ("scheduler", 1100, 1120), one(Finding.HELD_BACK)),
    ],
)
def test_what_stands_between_pre_and_launch_counts_on_the_launching_thread(
    launching: str, synchronize: Step, post: Step, expected: Diagnosis
) -> None:
    """Pre ends at 220, and the launch begins at 1150."""
    late = found(("scheduler", 200, 220), (launching, 1150, 1160), 1160, synchronize=synchronize, post=post)
    assert late == expected


def test_a_wait_before_the_launch_counts_even_if_the_gpu_hardly_idles() -> None:
    waits = found(
        ("scheduler", 200, 220), ("scheduler", 1105, 1106), 1106, synchronize=("scheduler", 220, 1100), post=POSTED
    )
    assert waits == one(Finding.WAITS_BEFORE_LAUNCH, "scheduler.py:synchronize")


def test_a_gap_of_the_same_moment_is_none() -> None:
    assert found(("scheduler", 200, 220), ("scheduler", 1110, 1120), 1150) == ON
    assert found(("scheduler", 200, 220), ("scheduler", 1110, 1120), 1151) == one(Finding.HELD_BACK)


@pytest.mark.parametrize(
    ("returns", "expected"),
    [(1100, one(Finding.WAITS_INSIDE_LAUNCH, "launch.py:launch")), (1099, one(Finding.HELD_BACK))],
)
def test_a_launch_that_returned_when_its_forward_was_over_made_the_next_one_late(
    returns: int, expected: Diagnosis
) -> None:
    """Launched by a thread that takes no part in the next batch, so it is not its work that is long."""
    late = found(("scheduler", 1100, 1120), ("scheduler", 1150, 1160), 1160, first_launch=("launch", 90, returns))
    assert late == expected


@pytest.mark.parametrize(
    ("locks", "finding"),
    [
        ([("scheduler", 1000, 1060)], Finding.LOCK),
        ([("scheduler", 1000, 1059)], Finding.HELD_BACK),
        ([("scheduler", 910, 940), ("scheduler", 1000, 1030)], Finding.LOCK),
        ([("scheduler", 840, 901), ("scheduler", 1000, 1059)], Finding.LOCK),
        ([("scheduler", 840, 900), ("scheduler", 1000, 1059)], Finding.HELD_BACK),
        ([("scheduler", 1101, 1180)], Finding.HELD_BACK),
        ([("scheduler", 1100, 1180)], Finding.LOCK),
        ([("post", 1000, 1160)], Finding.HELD_BACK),
        ([], Finding.HELD_BACK),
    ],
)
def test_the_gil_is_to_blame_only_if_the_launch_would_have_come_in_time_without_it(
    locks: list[Step], finding: Finding
) -> None:
    """The launch comes at 1160, 60 too late; what counts are waits between the start of pre and the launch."""
    late = found(("scheduler", 900, 1000), ("scheduler", 1160, 1170), 1170, locks=locks)
    assert late == one(finding, "scheduler.py:launch" if finding is Finding.LOCK else None)


def test_waits_of_the_preparing_and_of_the_launching_thread_add_up() -> None:
    waits = [("scheduler", 950, 980), ("launch", 1000, 1030)]
    late = found(("scheduler", 900, 1000), ("launch", 1160, 1170), 1170, locks=waits)
    assert late == one(Finding.LOCK, "launch.py:launch")


def test_a_launch_in_time_is_not_the_gils_fault_without_a_wait() -> None:
    assert found(("scheduler", 900, 1000), ("scheduler", 1090, 1095), 1200) == one(Finding.HELD_BACK)


def test_a_wait_for_the_gil_is_to_blame_even_if_the_request_came_late() -> None:
    waits = [("scheduler", 1100, 1160)]
    late = found(("scheduler", 1099, 1104), ("scheduler", 1160, 1170), 1170, arrivals=[0, 1097], locks=waits)
    assert late == one(Finding.LOCK, "scheduler.py:launch")


@pytest.mark.parametrize(
    ("launched", "copied", "finding"),
    [
        (1100, (1100, 1131), Finding.COPY),
        (1100, (1100, 1130), Finding.HELD_BACK),
        (1101, (1100, 1131), Finding.HELD_BACK),
        (1100, (1129, 1160), Finding.COPY),
        (1100, (1130, 1200), Finding.HELD_BACK),
    ],
)
def test_a_copy_is_to_blame_if_it_takes_more_than_half_of_the_gap_behind_a_launch_in_time(
    launched: int, copied: tuple[int, int], finding: Finding
) -> None:
    """The gap lasts from 1100 to 1160."""
    late = found(("scheduler", 900, 950), ("scheduler", 1000, launched), 1160, copy=("engine", *copied))
    assert late == one(finding)


@pytest.mark.parametrize(
    ("preparing", "pre_start", "finding"),
    [
        ("scheduler", 150, Finding.CPU_LONGER),
        ("scheduler", 151, Finding.HELD_BACK),
        ("worker", 150, Finding.CPU_LONGER),
        ("worker", 151, Finding.HELD_BACK),
    ],
)
def test_a_host_that_works_for_a_whole_forward_is_not_held_back(
    preparing: str, pre_start: int, finding: Finding
) -> None:
    """The forward goes on until 1100, and so does pre; with 950 of work while it runs the host had no time left."""
    late = found((preparing, pre_start, 1100), ("scheduler", 1160, 1170), 1170, post=("scheduler", 1170, 1300))
    assert late == one(finding)


@pytest.mark.parametrize(("worked_until", "finding"), [(800, Finding.CPU_LONGER), (799, Finding.HELD_BACK)])
def test_time_to_spare_is_to_blame_only_for_most_of_the_gap(worked_until: int, finding: Finding) -> None:
    """The launch works through a gap of 400, and the host had 200 to spare before."""
    late = found(("scheduler", 100, worked_until + 100), ("scheduler", 1100, 1500), 1500)
    assert late == one(finding)


def test_work_for_other_batches_is_no_excuse_for_a_batch_that_lies_prepared() -> None:
    other = (("scheduler", PRE, 2, 310, 1500),)
    assert found(("scheduler", 110, 120), ("scheduler", 1500, 1510), 1510, more=other) == one(Finding.HELD_BACK)


def test_idling_in_the_gap_counts_as_time_to_spare() -> None:
    """With 100 to spare before the gap, and nothing done in most of it."""
    assert found(("scheduler", 200, 1100), ("scheduler", 1490, 1500), 1500) == one(Finding.HELD_BACK)


def test_work_in_the_gap_alone_is_no_excuse() -> None:
    assert found(("scheduler", 1100, 2090), ("scheduler", 2090, 2100), 2100) == one(Finding.HELD_BACK)


@pytest.mark.parametrize(("until", "finding"), [(1050, Finding.CPU_LONGER), (1049, Finding.HELD_BACK)])
def test_a_post_thread_without_time_left_is_cpu_bound_too(until: int, finding: Finding) -> None:
    busy = (("post", POST, 2, 100, until),)
    assert found(("scheduler", 1080, 1150), ("scheduler", 1150, 1160), 1160, more=busy) == one(finding)


def steps(*kinds: str) -> Diagnosis:
    """Diagnose a run on one thread whose every forward takes 1000 and follows the one before it in one of four ways.

    "on": prepared behind the launch of the one before, "sync": after it was waited for, "post": after it was
    post-processed, "none": nobody was there when it was asked for.
    """
    host = "scheduler"
    rows = [(host, PRE, 0, 80, 90), (host, LAUNCH, 0, 90, 100), ("engine", FORWARD, 0, 100, 1100)]
    empty = {}
    end = 1100
    for number, kind in enumerate(kinds, start=1):
        last = number - 1
        rows.append((COPY_LANE, COPY, last, end, end + 1))
        if kind == "on":
            rows += [(host, PRE, number, end - 800, end - 790), (host, LAUNCH, number, end - 790, end - 780)]
            rows += [(host, SYNCHRONIZE, last, end - 780, end), (host, POST, last, end, end + 9)]
            begin = end
        elif kind == "post":
            rows += [(host, PRE, number, end - 800, end - 790), (host, SYNCHRONIZE, last, end - 790, end)]
            rows += [(host, POST, last, end, end + 70), (host, LAUNCH, number, end + 70, end + 80)]
            begin = end + 80
        else:
            if kind == "none":
                empty[number] = end + 20
            rows += [(host, SYNCHRONIZE, last, end - 780, end), (host, POST, last, end, end + 9)]
            rows += [(host, PRE, number, end + 60, end + 70), (host, LAUNCH, number, end + 70, end + 80)]
            begin = end + 80
        end = begin + 1000
        rows.append(("engine", FORWARD, number, begin, end))
    return diagnose(*by_hand(rows, empty=empty, unit_ns=1000))


def test_of_a_mixed_run_the_commonest_cause_and_its_line_are_told() -> None:
    found_first = steps("sync", "post", "on", "post", "post", "sync", "on", "on")
    assert found_first == Diagnosis(Finding.POST_FIRST, 5, 8, "scheduler.py:post")
    assert str(found_first) == (
        "off: post of the last batch stands before the launch of the next (5 of 8 launches late; at scheduler.py:post)"
    )
    assert steps("post", "sync", "sync", "on") == Diagnosis(Finding.SYNCHRONIZES, 3, 4, "scheduler.py:synchronize")


def test_launches_without_a_request_have_no_vote_and_are_not_counted() -> None:
    assert steps("none", "none", "sync", "none", "on") == Diagnosis(
        Finding.SYNCHRONIZES, 1, 2, "scheduler.py:synchronize"
    )
    assert steps("none", "on", "none") == Diagnosis(Finding.ON, 0, 1, None)
    assert steps("none", "none") == Diagnosis(Finding.NO_REQUESTS, 0, 0, None)


def test_a_launch_in_ten_may_be_late() -> None:
    on = steps("sync", *["on"] * 10)
    assert on == Diagnosis(Finding.ON, 1, 11, None)
    assert str(on) == "overlap is on (1 of 11 launches late)"
    assert str(steps("on", "on")) == "overlap is on (no launch late)"
    assert steps("sync", *["on"] * 8) == Diagnosis(Finding.SYNCHRONIZES, 1, 9, "scheduler.py:synchronize")


def test_a_copy_on_a_stream_of_its_own_is_in_nobodys_way() -> None:
    late = {"pre": ("scheduler", 900, 910), "launch": ("scheduler", 910, 920), "forward": 1160}
    assert found(**late, copy=("engine", 1100, 1131)) == one(Finding.COPY)
    assert found(**late, copy=(COPY_LANE, 1100, 1131)) == one(Finding.HELD_BACK)


@pytest.mark.parametrize(("num_late", "is_on"), [(1, True), (2, False)])
def test_nine_of_ten_launches_in_time_are_enough(num_late: int, is_on: bool) -> None:
    """Forwards of 100; a late one begins 50 after the end of the one before, prepared in the gap."""
    rows, begin = [], 100
    for batch_id in range(11):
        late = 50 if 0 < batch_id <= num_late else 0
        begin += late
        pre = (begin - 30, begin - 20) if late else (begin - 90, begin - 80)
        rows += [
            ("scheduler", PRE, batch_id, *pre),
            ("scheduler", LAUNCH, batch_id, pre[1], pre[1] + 1),
            ("engine", FORWARD, batch_id, begin, begin + 100),
            (COPY_LANE, COPY, batch_id, begin + 100, begin + 100),
            ("post", SYNCHRONIZE, batch_id, begin, begin + 100),
            ("post", POST, batch_id, begin + 100, begin + 101),
        ]
        begin += 100
    seen = diagnose(*by_hand(rows, unit_ns=1000))
    assert (seen.num_late, seen.num_launches, seen.is_on) == (num_late, 10, is_on)
