"""Durable tasks and workflows on the database that you already have."""

from penstock.app import App
from penstock.engine.deferrals import DeferTimeout, Interrupted
from penstock.engine.executions import Execution
from penstock.engine.handle import AsyncTaskHandle, Defer, TaskHandle
from penstock.engine.requests import Request
from penstock.engine.tasks import Task
from penstock.errors import (
    ExecutionNotFound,
    LeaseLost,
    PenstockError,
    TaskCancelled,
    TaskFailed,
    TaskSkipped,
    UnknownTask,
)
from penstock.model.events import Event
from penstock.model.retry import GiveUp, Retry, RetryAfter
from penstock.registry import Registry

__version__ = "0.1.0"

__all__ = [
    "App",
    "AsyncTaskHandle",
    "Defer",
    "DeferTimeout",
    "Event",
    "Execution",
    "ExecutionNotFound",
    "GiveUp",
    "Interrupted",
    "LeaseLost",
    "PenstockError",
    "Registry",
    "Request",
    "Retry",
    "RetryAfter",
    "Task",
    "TaskCancelled",
    "TaskFailed",
    "TaskHandle",
    "TaskSkipped",
    "UnknownTask",
]
