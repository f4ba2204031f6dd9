"""Loads the suite's pytest plugin; the work is in reports/ and impl/."""

pytest_plugins = ["reports.plugin"]
