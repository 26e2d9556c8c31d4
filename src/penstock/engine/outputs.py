"""What stands for the result of a task until there is one: the default of a parameter."""


class Output:
    """The result of one task of a workflow, as a parameter of another one asks for it."""

    def __init__(self, workflow: str, task: str) -> None:
        self.workflow = workflow
        self.task = task  # its name within the workflow

    def __repr__(self) -> str:
        return f"{self.task}.output"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Output) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((self.workflow, self.task))
