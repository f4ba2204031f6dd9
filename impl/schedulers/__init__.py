"""The article's schedulers, each a loop of about a screen; written once, run on every device."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable

from impl.engine import Scheduler
from impl.errors import SettingError
from impl.schedulers.normal import normal
from impl.schedulers.overlap import overlap
from impl.schedulers.overlap_just_in_time import overlap_just_in_time
from impl.schedulers.overlap_post_thread import overlap_post_thread
from impl.schedulers.overlap_three_thread import overlap_three_thread
from impl.schedulers.overlap_worker_thread import overlap_worker_thread, overlap_worker_thread_no_wait

__all__ = [
    "SCHEDULERS",
    "load",
    "load_users",
    "normal",
    "overlap",
    "overlap_just_in_time",
    "overlap_post_thread",
    "overlap_three_thread",
    "overlap_worker_thread",
    "overlap_worker_thread_no_wait",
]

SCHEDULERS: dict[str, Scheduler] = {
    "normal": normal,
    "overlap": overlap,
    "overlap_worker_thread": overlap_worker_thread,
    "overlap_worker_thread_no_wait": overlap_worker_thread_no_wait,
    "overlap_post_thread": overlap_post_thread,
    "overlap_three_thread": overlap_three_thread,
    "overlap_just_in_time": overlap_just_in_time,
}


def load(path: str) -> tuple[str, Scheduler]:
    """Import a user's scheduler from "package.module:name"; return the name it is listed under and itself.

    Raises:
        SettingError: if the path is malformed, does not import, or does not name a callable.
    """
    module_name, separator, name = path.partition(":")
    if not (module_name and separator and name):
        raise SettingError(f"scheduler {path!r}; allowed: package.module:name, for example my_engine.loops:overlap")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        described = f"{type(error).__name__}: {error}"
        raise SettingError(f"scheduler {path!r}: module {module_name!r} does not import: {described}") from error
    scheduler = getattr(module, name, None)
    if inspect.iscoroutinefunction(scheduler):
        raise SettingError(f"scheduler {path!r} is a coroutine function; allowed: a plain function of an Engine")
    if not callable(scheduler):
        found = ", ".join(sorted(n for n, v in vars(module).items() if callable(v) and not n.startswith("_")))
        raise SettingError(f"scheduler {path!r}: {module_name!r} has no callable {name!r}; it has: {found or 'none'}")
    if name in SCHEDULERS:
        raise SettingError(f"scheduler {path!r}: the name {name!r} is taken by one of the suite's own; rename yours")
    return name, scheduler


def load_users(paths: Iterable[str]) -> dict[str, Scheduler]:
    """Import the users' schedulers; each is listed under its own name.

    Raises:
        SettingError: for a bad path, and for two schedulers of the same name.
    """
    users: dict[str, Scheduler] = {}
    for path in paths:
        name, scheduler = load(path)
        if users.setdefault(name, scheduler) is not scheduler:
            raise SettingError(f"scheduler {path!r}: another one is already listed as {name!r}; rename one of them")
    return users
