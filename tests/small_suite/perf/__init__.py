"""A suite of seconds, for the tests of the plugin: it takes the place of perf/ in a copy of the repository."""
