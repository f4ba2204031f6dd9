"""The token function: what a forward returns, a pure function of request and position on every device.

The host encodes (request, position) as one 32-bit integer, the device multiplies it modulo 2**32. The multiplier
is odd, so that the map is one-to-one and only the code 0 becomes the token 0, the stop token.
"""

from __future__ import annotations

from impl.core import Item, Request

STOP_TOKEN = 0
MULTIPLIER = 1_103_515_245
MODULUS = 2**32
POSITIONS = 2**14
"""Output positions that fit into a code beside the request's id."""
MAX_REQUESTS = 2**31 // POSITIONS - 1


def encode(item: Item) -> int:
    """Encode an item for the device; a prompt chunk without a token counts as position 0."""
    return code(item.request, item.position or 0)


def code(request: Request, position: int) -> int:
    """Encode a request's output position; the position of its stop token is code 0."""
    if request.stop_after is not None and position == request.stop_after - 1:
        return 0
    return 1 + request.id * POSITIONS + position


def token_of(encoded: int) -> int:
    """Return the token that the device computes for an encoded item."""
    return encoded * MULTIPLIER % MODULUS


def expected_tokens(request: Request) -> list[int]:
    """Return the tokens that a request delivers under every scheduler."""
    return [token_of(code(request, position)) for position in range(request.num_output_tokens)]
