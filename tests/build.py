"""Small scenarios, batches and runs for tests."""

from __future__ import annotations

from collections.abc import Callable

from impl.batching import Batching, Single
from impl.core import Batch, Item, Request
from impl.costs import Costs, WorkKind, cost_ms
from impl.device.protocol import DeviceSettings
from impl.engine import Engine
from impl.experiment import Result, Scenario, run
from impl.machines import Machine, VirtualMachine
from impl.workload import Workload, burst

MS = 1_000_000


def stages(
    pre: float = 1, forward: float = 5, post: float = 1, *, launch: float = 0, host_work: WorkKind = WorkKind.SLEEP
) -> Costs:
    """Return constant costs in milliseconds."""
    return Costs(
        pre=cost_ms(pre), launch=cost_ms(launch), forward=cost_ms(forward), post=cost_ms(post), host_work=host_work
    )


def scenario(
    workload: Workload | None = None,
    batching: Batching | None = None,
    costs: Costs | None = None,
    settings: DeviceSettings | None = None,
) -> Scenario:
    """Return a scenario; by default three requests at once, one a forward, of 1 + 5 + 1 ms."""
    return Scenario(
        "small", workload or burst(3), batching or Single(), costs or stages(), settings or DeviceSettings()
    )


def attempt(
    scheduler: Callable[[Engine], None], served: Scenario | None = None, machine: Machine | None = None
) -> Result:
    """Run a scheduler, on the virtual device unless told otherwise."""
    return run(scheduler, served or scenario(), machine or VirtualMachine())


def batch(batch_id: int = 0, *, size: int = 1, num_tokens: int | None = None, is_prefill: bool = True) -> Batch:
    """Return a batch of `size` new requests."""
    items = [Item(Request(index, 0), 1, 0) for index in range(size)]
    return Batch(batch_id, items, size if num_tokens is None else num_tokens, is_prefill)
