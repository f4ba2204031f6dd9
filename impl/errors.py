"""The errors a run can end with. Each message says what was asked, what was found, and what to do."""

from __future__ import annotations


class SettingError(ValueError):
    """A setting is out of range or unknown; raised when it is given, before anything runs."""


class RunFailed(RuntimeError):
    """A run did not do its work: a thread raised, a request was lost, or nothing moved any more."""


class RunInvalid(RunFailed):
    """Every attempt was disturbed: it says nothing about the scheduler."""


class Deadlock(RunFailed):
    """Every thread waits for something that can no longer happen."""


class Stalled(RunFailed):
    """Nothing was recorded for too long in real time; the message holds the stacks of all threads."""


class ProtocolError(RunFailed):
    """A scheduler used the engine in a way that loses, repeats or corrupts work."""


class DeviceUnavailable(RuntimeError):
    """The device that was asked for cannot be used here; the message says why."""
