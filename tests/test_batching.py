from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impl.batching import MAX_UNSEEN_TOKENS, Continuous, Dynamic, Policy, Single
from impl.core import Item, Request
from impl.errors import ProtocolError, SettingError
from impl.experiment import Scenario
from impl.workload import Lengths, Workload, burst
from tests.build import stages
from tests.strategies import many_forwards, workloads


def shape(items: list[Item]) -> list[tuple[int, int, int | None]]:
    """Return (request, tokens, output position) of each item."""
    return [(item.request.id, item.num_tokens, item.position) for item in items]


def filled(rule: Continuous | Dynamic, *requests: Request) -> Policy:
    policy = rule.start()
    for request in requests:
        policy.add(request)
    return policy


def see(policy: Policy, items: list[Item], *ended: int) -> None:
    """Report a forward's results; the requests in `ended` ended with it."""
    policy.results([(item, item.request.id in ended) for item in items])


def prompts(*prompt_tokens: int, outputs: int = 1) -> list[Request]:
    return [Request(index, 0, tokens, outputs) for index, tokens in enumerate(prompt_tokens)]


def test_single_takes_one_and_dynamic_takes_all_up_to_its_size() -> None:
    assert shape(filled(Single(), *prompts(3, 4)).schedule()) == [(0, 3, 0)]
    policy = filled(Dynamic(2), *prompts(3, 4, 5))
    first, second = policy.schedule(), policy.schedule()
    assert shape(first) == [(0, 3, 0), (1, 4, 0)]
    assert shape(second) == [(2, 5, 0)]
    assert policy.schedule() == []
    assert policy.is_drained
    assert policy.num_held == 3
    see(policy, first, 0, 1)
    see(policy, second, 2)
    assert policy.num_held == 0


def test_prefill_goes_before_decode() -> None:
    first, second = prompts(5, 6, outputs=3)
    policy = filled(Continuous(8, 100), first)
    assert shape(policy.schedule()) == [(0, 5, 0)]
    policy.add(second)
    assert shape(policy.schedule()) == [(1, 6, 0)]
    assert shape(policy.schedule()) == [(0, 1, 1), (1, 1, 1)]


def test_a_prefill_batch_stays_within_its_token_budget() -> None:
    policy = filled(Continuous(8, 10), *prompts(4, 6, 1))
    assert shape(policy.schedule()) == [(0, 4, 0), (1, 6, 0)]
    assert shape(policy.schedule()) == [(2, 1, 0)]


def test_a_prompt_over_the_budget_runs_alone_unless_it_is_chunked() -> None:
    policy = filled(Continuous(8, 10), *prompts(4, 25, 3))
    assert [shape(policy.schedule()) for _ in range(3)] == [[(0, 4, 0)], [(1, 25, 0)], [(2, 3, 0)]]


def test_chunks_fill_the_budget_and_only_the_last_one_has_a_token() -> None:
    policy = filled(Continuous(8, 10, chunked=True), *prompts(4, 25, 3))
    assert [shape(policy.schedule()) for _ in range(4)] == [
        [(0, 4, 0), (1, 6, None)],
        [(1, 10, None)],
        [(1, 9, 0), (2, 1, None)],
        [(2, 2, 0)],
    ]


def test_no_more_than_max_running_hold_a_slot() -> None:
    policy = filled(Continuous(2, 100), *prompts(1, 1, 1, outputs=2))
    first = policy.schedule()
    assert shape(first) == [(0, 1, 0), (1, 1, 0)]
    assert policy.num_held == 2
    second = policy.schedule()
    assert shape(second) == [(0, 1, 1), (1, 1, 1)]
    see(policy, first)
    assert policy.schedule() == [], "the third one waits for a slot"
    assert not policy.is_drained
    see(policy, second, 0, 1)
    assert shape(policy.schedule()) == [(2, 1, 0)]


def test_a_request_is_at_most_one_unseen_token_ahead() -> None:
    policy = filled(Continuous(8, 100), *prompts(1, outputs=9))
    ahead = [policy.schedule() for _ in range(1 + MAX_UNSEEN_TOKENS)]
    assert [shape(items) for items in ahead] == [[(0, 1, position)] for position in range(1 + MAX_UNSEEN_TOKENS)]
    assert policy.schedule() == []
    see(policy, ahead[0])
    assert shape(policy.schedule()) == [(0, 1, 1 + MAX_UNSEEN_TOKENS)]
    assert policy.schedule() == []


def test_a_slot_is_given_back_after_the_surplus_forward_and_only_once() -> None:
    policy = filled(Continuous(1, 100), Request(0, 0, 1, max_output_tokens=9, stop_after=1))
    first, surplus = policy.schedule(), policy.schedule()
    see(policy, first, 0)
    assert policy.num_held == 1, "its surplus forward still uses the slot"
    assert policy.is_drained
    see(policy, surplus)
    assert policy.num_held == 0
    with pytest.raises(ProtocolError, match=r"a result for request 0 .* arrived after its resources were given back"):
        see(policy, surplus)


@pytest.mark.slow
@given(rule=many_forwards, workload=workloads(max_output_tokens=6), data=st.data())
def test_continuous_batching_serves_every_request_within_its_limits(
    rule: Continuous, workload: Workload, data: st.DataObject
) -> None:
    """Results arrive in order, but as late as the drawn choices let them."""
    requests = workload.requests
    policy = filled(rule, *requests)
    scheduled: dict[int, list[Item]] = {request.id: [] for request in requests}
    in_flight: list[list[Item]] = []
    num_seen = dict.fromkeys(scheduled, 0)
    while not (policy.is_drained and not in_flight):
        items = policy.schedule() if data.draw(st.booleans()) or not in_flight else []
        if items:
            in_flight.append(items)
            is_prefill = {not item.position for item in items}
            assert len(is_prefill) == 1, "prefill and decode do not share a batch"
            num_tokens = sum(item.num_tokens for item in items)
            if is_prefill == {True}:
                assert num_tokens <= rule.max_prefill_tokens or (len(items) == 1 and not rule.chunked)
            for item in items:
                scheduled[item.request.id].append(item)
        elif in_flight:
            seen = in_flight.pop(0)
            outcomes = []
            for item in seen:
                num_seen[item.request.id] += item.position is not None
                outcomes.append((item, num_seen[item.request.id] >= item.request.num_output_tokens))
            policy.results(outcomes)
        assert policy.num_held <= rule.max_running
        for request in requests:
            outputs = [item.position for item in scheduled[request.id] if item.position is not None]
            assert len(outputs) - num_seen[request.id] <= 1 + MAX_UNSEEN_TOKENS
    assert policy.num_held == 0
    for request in requests:
        items = scheduled[request.id]
        assert sum(item.num_tokens for item in items if not item.position) == request.prompt_tokens
        outputs = [item.position for item in items if item.position is not None]
        assert outputs == list(range(len(outputs)))
        assert request.num_output_tokens <= len(outputs) <= request.max_output_tokens


@pytest.mark.parametrize("value", [0, -3, 2.0, True, None])
def test_sizes_are_whole_numbers_of_at_least_1(value: int) -> None:
    for name, unit, make in (
        ("max_batch_size", "requests", lambda: Dynamic(value)),
        ("max_running", "requests", lambda: Continuous(value, 1)),
        ("max_prefill_tokens", "tokens", lambda: Continuous(1, value)),
    ):
        with pytest.raises(SettingError) as caught:
            make()
        assert str(caught.value) == f"{name} is {value!r}; allowed: a whole number of {unit}, at least 1"


def test_one_forward_a_request_cannot_serve_more_than_one_token() -> None:
    workload = burst(2, [Lengths(), Lengths(max_output_tokens=4)])
    with pytest.raises(SettingError) as caught:
        Scenario("two tokens", workload, Dynamic(4), stages())
    assert "request 1 may have 4 output tokens; allowed here: 1" in str(caught.value)
    assert "use Continuous" in str(caught.value)
