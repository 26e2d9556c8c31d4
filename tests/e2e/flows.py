"""What the tests of workflows share: working, and looking at what became of a run."""

from collections import Counter

from penstock import App, Run

PATIENCE = 30.0


def work(app: App, **options: int) -> None:
    """Do all that is due in a worker of this process, then stop."""
    with app.worker(slots=options.get("slots", 8)) as worker:
        worker.wait_until_idle()


def states(run: Run) -> dict[str, str]:
    return {name: one.state for name, one in run.refresh().tasks.items()}


def events(run: Run) -> Counter[str]:
    return Counter(event.type for event in run.history())


def order_of(run: Run, type_: str = "task.completed") -> list[str]:
    """The names of its tasks in the order of these events."""
    names = {one.id: name for name, one in run.tasks.items()}
    return [names[event.execution_id or ""] for event in run.history() if event.type == type_]
