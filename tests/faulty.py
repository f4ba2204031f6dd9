"""Schedulers that lose, repeat or never finish work; the suite must name what is wrong with each."""

from __future__ import annotations

from impl.core import Batch, Flight
from impl.engine import Engine
from impl.runtime.protocol import Queue
from impl.schedulers.normal import normal


def drops_second_batch(engine: Engine) -> None:
    """Take a batch and forget it."""
    stream = engine.stream("engine")
    while (batch := engine.next_batch()) is not None:
        if batch.id != 1:
            engine.pre(batch, stream)
            flight = engine.launch(batch, stream)
            engine.synchronize(flight)
            engine.post(flight)


def drops_all_but_first_batch(engine: Engine) -> None:
    """Serve one batch and forget the others."""
    stream = engine.stream("engine")
    while (batch := engine.next_batch()) is not None:
        if batch.id == 0:
            engine.pre(batch, stream)
            flight = engine.launch(batch, stream)
            engine.synchronize(flight)
            engine.post(flight)


def never_posts_second_batch(engine: Engine) -> None:
    """Compute tokens that nobody gets."""
    stream = engine.stream("engine")
    while (batch := engine.next_batch()) is not None:
        engine.pre(batch, stream)
        flight = engine.launch(batch, stream)
        engine.synchronize(flight)
        if batch.id != 1:
            engine.post(flight)


def posts_twice(engine: Engine) -> None:
    """Deliver each batch's tokens a second time."""
    stream = engine.stream("engine")
    while (batch := engine.next_batch()) is not None:
        engine.pre(batch, stream)
        flight = engine.launch(batch, stream)
        engine.synchronize(flight)
        engine.post(flight)
        engine.post(flight)


def posts_before_synchronize(engine: Engine) -> None:
    """Deliver tokens that are not there yet."""
    stream = engine.stream("engine")
    while (batch := engine.next_batch()) is not None:
        engine.pre(batch, stream)
        engine.post(engine.launch(batch, stream))


def launches_twice(engine: Engine) -> None:
    """Run each batch a second time."""
    stream = engine.stream("engine")
    while (batch := engine.next_batch()) is not None:
        engine.pre(batch, stream)
        for flight in [engine.launch(batch, stream), engine.launch(batch, stream)]:
            engine.synchronize(flight)
            engine.post(flight)


def launches_without_pre(engine: Engine) -> None:
    """Launch a batch whose inputs are not on the device."""
    stream = engine.stream("engine")
    while (batch := engine.next_batch()) is not None:
        engine.launch(batch, stream)


def forgets_wait_stream(engine: Engine) -> None:
    """Launch on a stream that does not wait for the inputs."""
    prepare, stream = engine.stream("scheduler"), engine.stream("engine")
    while (batch := engine.next_batch()) is not None:
        engine.pre(batch, prepare)
        engine.launch(batch, stream)


def reads_times_early(engine: Engine) -> None:
    """Ask how long a forward took before it is known."""
    stream = engine.stream("engine")
    while (batch := engine.next_batch()) is not None:
        engine.pre(batch, stream)
        flight = engine.launch(batch, stream)
        assert not flight.is_synchronized
        print(flight.forward_ns)


def makes_33_streams(engine: Engine) -> None:
    """Make a stream for each batch, which PyTorch's ring of 32 cannot give."""
    for index in range(33):
        engine.stream(f"stream {index}")


def never_asks(engine: Engine) -> None:
    """Return at once."""


def never_returns(engine: Engine) -> None:
    """Serve everything, then ask for ever."""
    normal(engine)
    while True:
        engine.next_batch()


def computes_for_ever(engine: Engine) -> None:
    """Take a batch and loop."""
    engine.next_batch()
    while True:
        pass


def handles_everything(engine: Engine) -> None:
    """Loop in a way that swallows every Exception."""
    engine.next_batch()
    while True:
        try:
            while True:
                pass
        except Exception:  # noqa: BLE001 - the fault
            pass


def polls_for_ever(engine: Engine) -> None:
    """Ask without waiting while the only batch is never finished."""
    while True:
        engine.next_batch(wait=False)


def waits_in_a_circle(engine: Engine) -> None:
    """Two threads each wait for what the other would put last."""
    first: Queue[Batch] = engine.queue("first")
    second: Queue[Batch] = engine.queue("second")

    def helper() -> None:
        item = second.get()
        assert item is not None
        first.put(item)

    engine.spawn(helper, "helper")
    batch = engine.next_batch()
    assert batch is not None
    first.get()
    second.put(batch)


def raises(engine: Engine) -> None:
    """Fail in the scheduler's own thread."""
    engine.next_batch()
    raise ValueError("no kernel for bf16")


def raises_in_helper(engine: Engine) -> None:
    """Fail in a spawned thread while the scheduler waits for it."""
    flights: Queue[Flight] = engine.queue("flights")

    def helper() -> None:
        raise ValueError("no kernel for bf16")

    engine.spawn(helper, "helper")
    engine.next_batch()
    flights.get()


def raises_in_helper_while_computing(engine: Engine) -> None:
    """Fail in a spawned thread while the scheduler never waits for anything."""

    def helper() -> None:
        raise ValueError("no kernel for bf16")

    engine.spawn(helper, "helper")
    computes_for_ever(engine)


def exits(engine: Engine) -> None:
    """Ask the interpreter to end."""
    engine.next_batch()
    raise SystemExit(3)
