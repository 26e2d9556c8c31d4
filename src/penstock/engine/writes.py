"""What a task has put into its workflow's context, as it is stored with the result."""

from penstock.engine.misfits import InvalidWrites
from penstock.model.context import Context
from penstock.model.payloads import InvalidPayload


def encode_writes(context: Context | None, *, task: str) -> str | None:
    """Return it as JSON text; None if the task wrote nothing, or has no context.

    Raises:
        InvalidWrites: something in it cannot be stored.
    """
    try:
        return None if context is None else context.written()
    except InvalidPayload as error:
        raise InvalidWrites(task, error.path, error.reason, error.next_step) from error
