"""Settings of the property tests: the same examples in every run, unless other ones are asked for."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("suite", deadline=None, derandomize=True, max_examples=60)
settings.register_profile("explore", deadline=None, max_examples=1000)  # pytest tests --hypothesis-profile=explore
collect_ignore = ["small_suite"]  # run by test_plugin.py, in a copy

settings.load_profile("suite")
