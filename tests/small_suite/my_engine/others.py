"""More of a user's schedulers."""

from __future__ import annotations

from my_engine.loops import loses as mine  # noqa: F401 - another scheduler of a name that is listed already
