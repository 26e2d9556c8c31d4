"""Our own tasks and workflows; the database is the one that PENSTOCK_DATABASE_URL names."""

from collections.abc import Callable, Coroutine

from playing import record

from penstock import App

STEPS = 5
FAN = 100
IN_A_FAN = FAN + 2

app = App()


@app.task
async def on_the_loop(n: int) -> None:
    record(n)


@app.task
def on_a_thread(n: int) -> None:
    record(n)


def inputs(n: int) -> None:
    del n


five_steps = app.workflow("five_steps", inputs=inputs)
fan = app.workflow("fan", inputs=inputs)


def recording(place: int, *, of: int) -> Callable[[int], Coroutine[None, None, None]]:
    """Return a task of its own for each place in a graph of so many."""

    async def task(n: int) -> None:
        record(n * of + place)

    return task


def _add_steps() -> None:
    previous = five_steps.task(name="step_0")(recording(0, of=STEPS))
    for place in range(1, STEPS):
        declare = five_steps.task(name=f"step_{place}", after=[previous])
        previous = declare(recording(place, of=STEPS))


def _add_fan() -> None:
    first = fan.task(name="first")(recording(0, of=IN_A_FAN))
    blades = [
        fan.task(name=f"blade_{place}", after=[first])(recording(place, of=IN_A_FAN))
        for place in range(1, FAN + 1)
    ]
    fan.task(name="last", after=blades)(recording(FAN + 1, of=IN_A_FAN))


_add_steps()
_add_fan()
