from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from impl.core import Item, Request
from impl.tokens import (
    MAX_REQUESTS,
    MODULUS,
    MULTIPLIER,
    POSITIONS,
    STOP_TOKEN,
    code,
    encode,
    expected_tokens,
    token_of,
)

PLACES = st.tuples(st.integers(0, MAX_REQUESTS - 1), st.integers(0, POSITIONS - 1))


@given(first=PLACES, second=PLACES)
def test_tokens_of_different_places_differ(first: tuple[int, int], second: tuple[int, int]) -> None:
    tokens = {token_of(code(Request(request_id, 0), position)) for request_id, position in (first, second)}
    assert len(tokens) == len({first, second})
    assert STOP_TOKEN not in tokens


@given(encoded=st.integers(0, MODULUS - 1))
def test_a_token_can_be_decoded(encoded: int) -> None:
    assert token_of(encoded) * pow(MULTIPLIER, -1, MODULUS) % MODULUS == encoded


def test_a_code_fits_into_a_signed_32_bit_integer_of_the_device() -> None:
    last = code(Request(MAX_REQUESTS - 1, 0), POSITIONS - 1)
    assert 0 < last < 2**31 < MODULUS


@given(encoded=st.integers(0, 2**31 - 1))
def test_only_the_code_of_a_stop_token_becomes_it(encoded: int) -> None:
    assert (token_of(encoded) == STOP_TOKEN) == (encoded == 0)


@given(request_id=st.integers(0, MAX_REQUESTS - 1), limit=st.integers(1, 30), stop=st.none() | st.integers(1, 35))
def test_the_stop_token_comes_last_and_only_where_it_was_asked_for(
    request_id: int, limit: int, stop: int | None
) -> None:
    request = Request(request_id, 0, max_output_tokens=limit, stop_after=stop)
    tokens = expected_tokens(request)
    is_stopped = stop is not None and stop <= limit
    assert len(tokens) == request.num_output_tokens == (stop if is_stopped else limit)
    assert [index for index, token in enumerate(tokens) if token == STOP_TOKEN] == ([stop - 1] if is_stopped else [])
    assert len(set(tokens)) == len(tokens)


def test_a_prompt_chunk_without_a_token_is_encoded_as_position_0() -> None:
    request = Request(7, 0, prompt_tokens=9)
    assert encode(Item(request, 4, None)) == encode(Item(request, 5, 0)) == code(request, 0)
