"""Reads the traces that `pytest perf --trace-dir` wrote: an event a line, so that a long one never fills the memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from impl.timeline import STAGES, Span
from reports.files import FileError
from reports.rows import Mark
from reports.trace import ARRIVAL, FIRST_TOKEN, LAST_LINE, MAX_NAMED_REQUESTS

REMEDY = "write it again with: pytest perf --trace-dir DIR"
LARGEST = 2**53
"""JavaScript tells no larger whole numbers apart; in nanoseconds 104 days."""
LONGEST_HEAD = 1000
"""Letters of the first line, beyond which the file is another tool's."""
IGNORED = ("s", "f", "C")
"""Arrows and counters."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch, without the time at which it was taken, which no trace tells."""

    num_tokens: int
    size: int
    """In requests."""
    request_ids: tuple[int, ...]
    """All, or the first of a large batch."""


@dataclass(slots=True)
class Trace:
    """A run as its trace tells it; all times in nanoseconds from the start of the run."""

    total_ns: int
    """From the start to the last delivery."""
    num_spans: int
    """Of the run; a trace of a very long one holds only the earliest."""
    spans: list[Span] = field(default_factory=list)
    batches: dict[int, Batch] = field(default_factory=dict)
    """By id."""
    marks: dict[str, list[Mark]] = field(default_factory=lambda: {kind: [] for kind in (ARRIVAL, FIRST_TOKEN)})


def read_trace(path: Path) -> Trace:
    """Read a trace.

    Raises:
        FileError: naming file, line, field and remedy, if it is damaged or was not written by this suite.
    """
    number = 1
    lanes: dict[tuple[int, int], str] = {}
    try:
        with path.open(encoding="utf-8") as file:
            trace = _begin(file.readline(LONGEST_HEAD))
            for line in file:
                number += 1
                if line.strip() == LAST_LINE:
                    if trace.num_spans and not trace.spans:
                        raise ValueError(f"the trace ends without any of its {trace.num_spans:,} spans")
                    return trace
                _add(trace, lanes, _object(line.strip().removesuffix(",")))
            raise ValueError("the rest is missing: the file is cut off")
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: line {number}: {error}; {REMEDY}") from error


def _begin(line: str) -> Trace:
    try:
        head = _object(line + LAST_LINE)
    except ValueError as error:
        raise ValueError("not the beginning of a trace of this suite") from error
    about = _mapping(head, "otherData")
    return Trace(total_ns=_whole(about, "total_ns"), num_spans=_whole(about, "num_spans"))


def _add(trace: Trace, lanes: dict[tuple[int, int], str], event: Mapping[str, Any]) -> None:
    phase = event.get("ph")
    if phase == "M":
        lanes[_track(event)] = _text(_mapping(event, "args"), "name")
    elif phase == "X":
        _add_span(trace, lanes, event)
    elif phase == "i":
        _add_mark(trace, event)
    elif phase not in IGNORED:
        raise _unusable(event, "ph", f"one of M, X, i, {', '.join(IGNORED)}")


def _add_span(trace: Trace, lanes: Mapping[tuple[int, int], str], event: Mapping[str, Any]) -> None:
    track = _track(event)
    if track not in lanes:
        raise _unusable(event, "tid", "a thread that an earlier line names")
    stage = _text(event, "cat")
    if stage not in STAGES:
        raise _unusable(event, "cat", f"one of {', '.join(STAGES)}")
    about = _mapping(event, "args")
    batch_id, size = _whole(about, "batch"), _whole(about, "size")
    if batch_id not in trace.batches:
        trace.batches[batch_id] = Batch(_whole(about, "tokens"), size, _requests(about, size))
    start_ns = _ns(event, "ts")
    trace.spans.append(Span(lanes[track], stage, batch_id, start_ns, start_ns + _ns(event, "dur")))


def _add_mark(trace: Trace, event: Mapping[str, Any]) -> None:
    about = _mapping(event, "args")
    kind = _text(event, "cat")
    if kind not in trace.marks:
        raise _unusable(event, "cat", f"one of {', '.join(trace.marks)}")
    trace.marks[kind].append(Mark(_ns(event, "ts"), _whole(about, "request"), _whole(about, "batch")))


def _object(text: str) -> Mapping[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"holds a {type(found).__name__}; expected an object")
    return found


def _unusable(holder: Mapping[str, Any], name: str, expected: str) -> ValueError:
    return ValueError(f"field {name!r} is {holder.get(name)!r:.60}; expected {expected}")


def _mapping(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = holder.get(name)
    if not isinstance(found, dict):
        raise _unusable(holder, name, "an object")
    return found


def _text(holder: Mapping[str, Any], name: str) -> str:
    found = holder.get(name)
    if not isinstance(found, str):
        raise _unusable(holder, name, "a text")
    return found


def _whole(holder: Mapping[str, Any], name: str) -> int:
    found = holder.get(name)
    if not _is_whole(found):
        raise _unusable(holder, name, f"a whole number from 0 to {LARGEST}")
    return found


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _track(event: Mapping[str, Any]) -> tuple[int, int]:
    return _whole(event, "pid"), _whole(event, "tid")


def _ns(holder: Mapping[str, Any], name: str) -> int:
    """Return a time, which a trace has in microseconds."""
    found = holder.get(name)
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    if not is_number or not 0 <= found <= LARGEST / 1000:  # type: ignore[operator] # a number
        raise _unusable(holder, name, f"microseconds from 0 to {LARGEST // 1000}")
    return round(found * 1000)  # type: ignore[operator] # a number


def _requests(holder: Mapping[str, Any], size: int) -> tuple[int, ...]:
    found = holder.get("requests")
    num_named = min(size, MAX_NAMED_REQUESTS)
    if not isinstance(found, list) or len(found) != num_named or not all(map(_is_whole, found)):
        raise _unusable(holder, "requests", f"the numbers of {num_named} requests, as 'size' is {size}")
    return tuple(found)
