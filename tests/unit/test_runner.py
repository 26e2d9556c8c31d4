"""What a worker's runner says about itself while slots go from hand to hand."""

import threading
from contextlib import closing

from penstock import App
from tests.support.deferring import World


def test_a_slot_that_stock_waits_for_is_not_offered_to_a_suspect() -> None:
    """A suspect is said to have begun before it does, so it must not wait behind others."""
    with closing(App("sqlite:///:memory:", migrate=True)) as app:
        work = app.task(name="work")(lambda: None)
        world = World(app, [], slots=2)
        runner = world.runner
        runner._loop_thread = threading.get_ident()
        running, waiting = world.claim(work), world.claim(work)
        assert running.slot is not None
        assert waiting.slot is not None
        del runner.running[waiting.claimed.lease]
        runner._stock.add([waiting])
        assert not runner.takes_suspects

        waiting.slot.end()  # on the loop, which fills it in its next turn

        assert runner.slots.free == 1
        assert not runner.takes_suspects
        running.slot.end()
        assert runner.takes_suspects
        runner._loop.close()
