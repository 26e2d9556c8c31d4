"""What is said when a workflow is declared, started or looked for in a way that cannot be.

Each error keeps its facts as its arguments, so that it survives the way out of a child process.
"""

from penstock.engine.misfits import InvalidArguments
from penstock.errors import PenstockError


class InvalidWorkflow(PenstockError, TypeError):
    """A workflow, or a task in it, that could not run as it is declared."""

    def __init__(self, workflow: str, task: str | None, reason: str, next_step: str) -> None:
        self.workflow = workflow
        self.task = task
        self.reason = reason
        self.next_step = next_step
        super().__init__(workflow, task, reason, next_step)

    def __str__(self) -> str:
        what = f"Workflow {self.workflow!r} cannot be declared like this"
        if self.task is not None:
            what = f"Task {self.task!r} cannot be part of the workflow {self.workflow!r}"
        return f"{what}: {self.reason}. {self.next_step}."


class InvalidInputs(InvalidArguments):
    """Inputs that a workflow could not be started with; `task` is the workflow's name."""

    def __str__(self) -> str:
        return (
            f"Workflow {self.task!r} cannot be started like this: {self.reason}. "
            f"It takes {self.takes}. Nothing was written."
        )


class EmptyWorkflow(PenstockError):
    """A workflow without tasks has nothing to run."""

    def __init__(self, workflow: str) -> None:
        self.workflow = workflow
        super().__init__(
            f"Workflow {workflow!r} has no tasks, so there is nothing to start. Declare one with "
            "`@workflow.task`, and import the module that does before you start it."
        )


class TooManyTasks(PenstockError):
    """A workflow with more tasks than a run has ids for."""

    def __init__(self, workflow: str, tasks: int, *, most: int) -> None:
        self.workflow = workflow
        self.tasks = tasks
        super().__init__(
            f"Workflow {workflow!r} has {tasks} tasks, and a run can have {most}. For many of the "
            "same kind declare one task with for_each=…"
        )


class OtherWorkflow(PenstockError):
    """An id that belongs to a run of another workflow."""

    def __init__(self, run_id: str, *, workflow: str, asked: str) -> None:
        self.run_id = run_id
        self.workflow = workflow
        self.asked = asked
        super().__init__(
            f"{run_id} is a run of the workflow {workflow!r}, not of {asked!r}. "
            "Ask that workflow for it, or `app.get(…)`, which finds any."
        )


class NoSuchTaskInRun(PenstockError, KeyError):
    """A run was asked for a task that it does not have."""

    def __init__(self, workflow: str, task: str, there: tuple[str, ...]) -> None:
        self.workflow = workflow
        self.task = task
        self.there = there
        super().__init__(workflow, task, there)

    def __str__(self) -> str:
        return (
            f"This run of {self.workflow!r} has no task {self.task!r}. It has the tasks that the "
            f"workflow had when it started: {', '.join(self.there)}."
        )
