"""NVTX ranges around the stages, so that profilers show them under the suite's own domain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from impl.timeline import LAUNCH, POST, PRE, SYNCHRONIZE

if TYPE_CHECKING:
    from impl.core import Batch

DOMAIN = "overlap"
COLORS = {PRE: "cyan", LAUNCH: "orange", SYNCHRONIZE: "white", POST: "green"}
MAX_NAMED_REQUESTS = 4
"""Of a batch, in a range's name: a profiler keeps every name it has met."""


class Domain(Protocol):
    """What is used of `nvtx.Domain`."""

    def get_event_attributes(self, *, message: str, color: str, category: str, payload: int) -> Any:
        """Describe a range."""

    def push_range(self, attributes: Any) -> None:
        """Begin a range on the calling thread."""

    def pop_range(self) -> None:
        """End the range that the calling thread began last."""


class Ranges:
    """Ranges named after stage, batch and requests; they nest within a thread.

    The category is the stage and the payload the batch's id, for tools that filter by them.
    """

    def __init__(self, domain: Domain) -> None:
        self._domain = domain

    def push(self, stage: str, batch: Batch) -> None:
        """Begin a range on the calling thread."""
        self._domain.push_range(
            self._domain.get_event_attributes(
                message=range_name(stage, batch), color=COLORS[stage], category=stage, payload=batch.id
            )
        )

    def pop(self) -> None:
        """End the range that the calling thread began last."""
        self._domain.pop_range()


def range_name(stage: str, batch: Batch) -> str:
    """Return a range's name, as "launch batch 3 request 5 6 7 8 and 2 more".

    Words and blanks only: the filters of profilers give a meaning to / * + @ , and brackets.
    """
    named = " ".join(str(item.request.id) for item in batch.items[:MAX_NAMED_REQUESTS])
    rest = batch.size - MAX_NAMED_REQUESTS
    return f"{stage} batch {batch.id} request {named}" + (f" and {rest} more" if rest > 0 else "")


def nvtx_ranges() -> Ranges | None:
    """Return ranges if a tool listens, else None.

    Without one, nvtx hands out a stand-in for the domain, and even an empty range would cost a microsecond.
    """
    if why_no_nvtx() is not None:
        return None
    import nvtx

    domain = nvtx.get_domain(DOMAIN)
    return Ranges(domain) if isinstance(domain, nvtx.Domain) else None


def why_no_nvtx() -> str | None:
    """Return the reason why no tool can see ranges; None if one could, were it there."""
    try:
        import nvtx  # noqa: F401
    except (ImportError, OSError) as error:  # or a library that it loads is missing
        return f"nvtx does not import ({error}); install it with: pip install nvtx"
    return None
