"""One contract for all devices; the virtual one is trusted only as far as it is held to the same rules here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise

import pytest

from impl.batching import Single
from impl.core import Flight
from impl.costs import Costs, cost_ms
from impl.device.protocol import DeviceSettings, LaunchBlocks
from impl.device.stream import STREAM_RING, Stream
from impl.engine import Engine
from impl.errors import ProtocolError
from impl.machines import CpuMachine, CudaMachine, Machine, VirtualMachine
from impl.tokens import expected_tokens
from impl.workload import burst
from tests.build import MS

FORWARD_MS = 100
"""So long that a thread may wake up a third of it late, as on a busy machine."""
SLACK_NS = {"virtual": 0, "cpu": 0, "cuda": 1 * MS}
"""How far a device's clock may be off the host's."""
MACHINES: list[object] = [
    pytest.param(VirtualMachine, id="virtual"),
    pytest.param(CpuMachine, id="cpu"),
    pytest.param(cache(CudaMachine), id="cuda", marks=pytest.mark.gpu),
]


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Machine:
    return request.param()


def play(
    machine: Machine,
    body: Callable[[Engine], None],
    settings: DeviceSettings | None = None,
    *,
    copy_ms: float = 0,
) -> Engine:
    """Run a part of a scheduler, with no check that it served every request."""
    workload = burst(4)
    costs = Costs(forward=cost_ms(FORWARD_MS), copy=cost_ms(copy_ms))
    runtime, device = machine.open(settings or DeviceSettings(), num_forwards=8)
    engine = Engine(runtime, device, workload, costs, Single(), None)
    try:
        runtime.run(partial(body, engine), progress=engine.progress, stall_s=30)
    finally:
        device.close(has_failed=False)
    return engine


def launch(engine: Engine, stream: Stream) -> Flight:
    """Launch the next batch with its inputs on the same stream."""
    batch = engine.next_batch()
    assert batch is not None
    engine.pre(batch, stream)
    return engine.launch(batch, stream)


def in_a_row(machine: Machine, num: int, settings: DeviceSettings | None = None) -> list[Flight]:
    """Launch forwards behind each other on one stream, and wait only then."""
    flights: list[Flight] = []

    def body(engine: Engine) -> None:
        stream = engine.stream("engine")
        flights.extend(launch(engine, stream) for _ in range(num))
        for flight in flights:
            engine.synchronize(flight)

    play(machine, body, settings)
    return flights


def test_a_stream_runs_its_forwards_in_order_and_each_takes_its_time(machine: Machine) -> None:
    flights = in_a_row(machine, 3)
    assert all(flight.forward_ns >= 0.9 * FORWARD_MS * MS for flight in flights)
    for before, after in pairwise(flight.times() for flight in flights):
        assert before[1] <= after[0]
    for start_ns, end_ns, copy_end_ns in (flight.times() for flight in flights):
        assert start_ns < end_ns <= copy_end_ns


def test_a_forward_returns_the_tokens_of_its_requests(machine: Machine) -> None:
    for flight in in_a_row(machine, 2):
        assert flight.tokens == [expected_tokens(item.request)[0] for item in flight.batch.items]


def test_wait_stream_orders_a_forward_after_all_that_was_issued_on_the_other_stream(machine: Machine) -> None:
    flights: list[Flight] = []

    def body(engine: Engine) -> None:
        first, second = engine.stream("first"), engine.stream("second")
        flights.append(launch(engine, first))
        second.wait_stream(first)
        flights.append(launch(engine, second))
        for flight in flights:
            engine.synchronize(flight)

    # Without a copy stream the copy is on the first stream as well, and the wait covers it.
    play(machine, body, DeviceSettings(has_copy_stream=False), copy_ms=10)
    assert flights[1].times()[0] >= flights[0].times()[2]


def test_without_a_copy_stream_the_next_forward_waits_for_the_copy(machine: Machine) -> None:
    def gap_ns(*, has_copy_stream: bool) -> int:
        flights: list[Flight] = []

        def body(engine: Engine) -> None:
            stream = engine.stream("engine")
            flights.extend(launch(engine, stream) for _ in range(2))
            for flight in flights:
                engine.synchronize(flight)

        play(machine, body, DeviceSettings(has_copy_stream=has_copy_stream), copy_ms=20)
        return flights[1].times()[0] - flights[0].times()[1]

    assert gap_ns(has_copy_stream=False) >= 0.8 * 20 * MS
    assert gap_ns(has_copy_stream=True) < 0.8 * 20 * MS


def test_the_virtual_device_has_one_compute_and_one_copy_engine() -> None:
    flights: list[Flight] = []

    def body(engine: Engine) -> None:
        flights.extend(launch(engine, engine.stream(name)) for name in ("first", "second"))
        for flight in flights:
            engine.synchronize(flight)

    copy_ms = 2 * FORWARD_MS  # so that the second copy waits for the first
    play(VirtualMachine(), body, copy_ms=copy_ms)
    (start_ns, first_end_ns, first_copied_ns), second = (flight.times() for flight in flights)
    assert first_end_ns == start_ns + FORWARD_MS * MS
    assert second == (first_end_ns, first_end_ns + FORWARD_MS * MS, first_copied_ns + copy_ms * MS)


def forgets_to_wait(engine: Engine, prepare: Stream, stream: Stream) -> None:
    batch = engine.next_batch()
    assert batch is not None
    engine.pre(batch, prepare)
    engine.launch(batch, stream)


def waits_too_early(engine: Engine, prepare: Stream, stream: Stream) -> None:
    stream.wait_stream(prepare)
    forgets_to_wait(engine, prepare, stream)


def waits_the_wrong_way(engine: Engine, prepare: Stream, stream: Stream) -> None:
    batch = engine.next_batch()
    assert batch is not None
    engine.pre(batch, prepare)
    prepare.wait_stream(stream)
    engine.launch(batch, stream)


@pytest.mark.parametrize("mistake", [forgets_to_wait, waits_too_early, waits_the_wrong_way])
def test_a_launch_that_does_not_wait_for_its_inputs_is_refused(
    machine: Machine, mistake: Callable[[Engine, Stream, Stream], None]
) -> None:
    with pytest.raises(ProtocolError) as caught:
        play(machine, lambda engine: mistake(engine, engine.stream("uploads"), engine.stream("compute")))
    assert str(caught.value) == (
        "batch 0 reads inputs uploaded on stream 'uploads', and stream 'compute' never waited for that upload; "
        "call compute.wait_stream(uploads) before the launch"
    )


def test_a_launch_without_inputs_is_refused(machine: Machine) -> None:
    def body(engine: Engine) -> None:
        batch = engine.next_batch()
        assert batch is not None
        engine.launch(batch, engine.stream("compute"))

    with pytest.raises(ProtocolError, match="batch 0 is launched without its inputs"):
        play(machine, body)


def test_a_launch_returns_before_its_forward_has_run(machine: Machine) -> None:
    for flight in in_a_row(machine, 2):
        assert flight.launched_ns < flight.times()[1] - 0.1 * FORWARD_MS * MS


def test_a_launch_blocked_by_its_own_forward_returns_after_it(machine: Machine) -> None:
    for flight in in_a_row(machine, 2, DeviceSettings(launch_blocks=LaunchBlocks.OWN_FORWARD)):
        assert flight.launched_ns >= flight.times()[1] - SLACK_NS[machine.name]


def test_a_launch_blocked_by_the_previous_forward_returns_after_that_and_before_its_own_ends(machine: Machine) -> None:
    first, second = in_a_row(machine, 2, DeviceSettings(launch_blocks=LaunchBlocks.PREVIOUS_FORWARD))
    assert first.launched_ns < first.times()[1]
    assert first.times()[1] - SLACK_NS[machine.name] <= second.launched_ns < second.times()[1]


def test_a_launch_blocks_while_the_queue_of_kernels_is_full(machine: Machine) -> None:
    """3,000 kernels, of which 1,000 fit into the queue: two thirds have run when the launch returns."""
    for flight in in_a_row(machine, 2, DeviceSettings(kernels_per_forward=3000)):
        start_ns, end_ns, _ = flight.times()
        assert start_ns + 0.6 * (end_ns - start_ns) <= flight.launched_ns < end_ns


@pytest.mark.parametrize(
    ("kernels", "shares"),
    [
        (1000, [0, 0]),  # one forward fills the queue: the next one is in when the first has run
        (3000, [2 / 3, 2 / 3]),
        (600, [0, -2 / 3]),  # 200 of the first forward's 600 must have run before 600 more fit in
        (500, [0, -1, -1]),  # two fit in
    ],
)
def test_the_virtual_queue_has_room_for_exactly_1000_kernels(kernels: int, shares: list[float]) -> None:
    """A launch returns when this share of its own forward has run; below 0, so long before it starts."""
    flights = in_a_row(VirtualMachine(), len(shares), DeviceSettings(kernels_per_forward=kernels))
    found = [(flight.launched_ns - flight.times()[0]) / (FORWARD_MS * MS) for flight in flights]
    assert found == pytest.approx(shares)


def test_the_33rd_stream_of_a_run_is_refused(machine: Machine) -> None:
    def body(engine: Engine) -> None:
        for index in range(STREAM_RING + 1):
            engine.stream(f"s{index}")

    with pytest.raises(ProtocolError, match="are the same stream") as caught:
        play(machine, body)
    assert "create each stream once and keep it" in str(caught.value)


def test_32_streams_are_allowed_on_the_virtual_device() -> None:
    play(VirtualMachine(), lambda engine: [engine.stream(f"s{index}") for index in range(STREAM_RING)] and None)


def test_times_are_unreadable_until_synchronize_has_returned(machine: Machine) -> None:
    def body(engine: Engine) -> None:
        flight = launch(engine, engine.stream("engine"))
        for read in (flight.times, lambda: flight.forward_ns):
            with pytest.raises(ProtocolError, match="the forward of batch 0 has no measured times yet"):
                read()
        assert flight.tokens == []
        engine.synchronize(flight)
        assert flight.forward_ns > 0
        assert flight.times()[2] <= engine.now_ns() + SLACK_NS[machine.name]

    play(machine, body)


def test_post_is_refused_before_synchronize_and_a_second_time(machine: Machine) -> None:
    def body(engine: Engine) -> None:
        flight = launch(engine, engine.stream("engine"))
        with pytest.raises(ProtocolError, match="post of batch 0 before its tokens are there"):
            engine.post(flight)
        engine.synchronize(flight)
        engine.post(flight)
        with pytest.raises(ProtocolError, match="post of batch 0 a second time"):
            engine.post(flight)

    assert len(play(machine, body).timeline.deliveries) == 1
