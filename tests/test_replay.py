from __future__ import annotations

import pytest

from reports.replay import ReplayClock


def test_the_clock_moves_by_the_measured_times_and_only_when_told_to() -> None:
    clock = ReplayClock()
    clock.load([0.1, 0.2, 0.7])
    took = []
    for _ in range(3):
        clock.reset()
        begin = clock()
        assert clock() == begin
        clock.advance()
        took.append(clock() - begin)
    assert took == [0.1, 0.2, 0.7], "to the last bit"


def test_more_calls_than_measured_times_are_an_error() -> None:
    clock = ReplayClock()
    with pytest.raises(StopIteration):
        clock.advance()
    clock.load([1.0])
    clock.advance()
    with pytest.raises(StopIteration):
        clock.advance()
