from __future__ import annotations

import pytest

from impl.core import Item, Request
from impl.errors import ProtocolError
from impl.ledger import Ledger, Outcome
from impl.tokens import STOP_TOKEN
from impl.workload import Lengths, burst


def ledger(num_requests: int = 1, **lengths: int) -> tuple[Ledger, list[Request]]:
    workload = burst(num_requests, Lengths(**lengths))
    return Ledger(workload), list(workload.requests)


def test_tokens_are_kept_in_order_until_the_length_limit_ends_the_request() -> None:
    books, (request,) = ledger(max_output_tokens=2)
    assert books.deliver(Item(request, 4, None), 99) is Outcome.CHUNK
    assert books.deliver(Item(request, 1, 0), 11) is Outcome.DELIVERED
    assert books.deliver(Item(request, 1, 1), 12) is Outcome.ENDED
    assert books.tokens == [[11, 12]]
    books.require_all_ended()


def test_a_stop_token_ends_the_request_and_what_follows_is_surplus() -> None:
    books, (request,) = ledger(max_output_tokens=9)
    assert books.deliver(Item(request, 1, 0), STOP_TOKEN) is Outcome.ENDED
    assert books.deliver(Item(request, 1, 1), 12) is Outcome.SURPLUS
    assert books.tokens == [[STOP_TOKEN]]


def test_a_repeated_token_is_an_error_also_after_the_end() -> None:
    books, (request,) = ledger(max_output_tokens=2)
    books.deliver(Item(request, 1, 0), 11)
    with pytest.raises(ProtocolError, match="output 0 of request 0 is repeated: 1 outputs were delivered before it"):
        books.deliver(Item(request, 1, 0), 11)
    books.deliver(Item(request, 1, 1), 12)
    with pytest.raises(ProtocolError, match="output 1 of request 0 is repeated: 2 outputs were delivered before it"):
        books.deliver(Item(request, 1, 1), 12)


def test_a_skipped_token_is_an_error() -> None:
    books, (request,) = ledger(max_output_tokens=3)
    with pytest.raises(ProtocolError, match="output 1 of request 0 is out of order: 0 outputs were delivered"):
        books.deliver(Item(request, 1, 1), 12)


def test_requests_that_never_ended_are_named_with_what_they_got() -> None:
    books, requests = ledger(8, max_output_tokens=2)
    books.deliver(Item(requests[1], 1, 0), 11)
    with pytest.raises(ProtocolError) as caught:
        books.require_all_ended()
    assert "8 of 8 requests never ended" in str(caught.value)
    assert "request 0 (0 of 2 outputs), 1 (1 of 2 outputs), 2 " in str(caught.value)
    assert "and 3 more; every batch needs launch, synchronize and post" in str(caught.value)
