"""NVTX ranges around the stages, so that profilers show them under the suite's own domain."""

from __future__ import annotations

import nvtx

DOMAIN = "overlap"


class Ranges:
    """Ranges named after the stage, with the batch's id as payload; they nest within a thread."""

    def __init__(self, domain: nvtx.Domain) -> None:
        self._domain = domain

    def push(self, stage: str, batch_id: int) -> None:
        """Begin a range on the calling thread."""
        self._domain.push_range(self._domain.get_event_attributes(message=stage, payload=batch_id))

    def pop(self) -> None:
        """End the range that the calling thread began last."""
        self._domain.pop_range()


def nvtx_ranges() -> Ranges | None:
    """Return ranges if a tool listens, else None.

    Without one, nvtx hands out a stand-in for the domain, and even an empty range would cost a microsecond.
    """
    domain = nvtx.get_domain(DOMAIN)
    return Ranges(domain) if isinstance(domain, nvtx.Domain) else None
