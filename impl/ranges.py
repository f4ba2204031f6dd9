"""NVTX ranges around the stages, so that profilers show them under the suite's own domain."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import nvtx

DOMAIN = "overlap"
_NOTHING: AbstractContextManager[None] = nullcontext()


class Ranges(Protocol):
    """Makes the range of one stage of one batch."""

    def __call__(self, stage: str, batch_id: int, /) -> AbstractContextManager[object]: ...


def no_ranges(stage: str, batch_id: int) -> AbstractContextManager[object]:
    """Make no range: for virtual time, which no profiler can see."""
    return _NOTHING


def nvtx_ranges() -> Ranges:
    """Return ranges named after the stage, in the domain "overlap", with the batch's id as payload.

    Without a tool that listens, nvtx hands out a stand-in for the domain; then no ranges are made at all, because
    even an empty one costs microseconds.
    """
    if isinstance(nvtx.get_domain(DOMAIN), nvtx.Domain):
        return lambda stage, batch_id: nvtx.annotate(message=stage, domain=DOMAIN, payload=batch_id)
    return no_ranges
