"""Durable tasks and workflows on the database that you already have."""

from penstock.app import App
from penstock.engine.conditions import (
    Condition,
    all_done,
    all_succeeded,
    any_failed,
    any_succeeded,
    failed,
    none_failed,
    skipped,
    succeeded,
    value,
)
from penstock.engine.deferrals import DeferTimeout, Interrupted
from penstock.engine.executions import Execution
from penstock.engine.handle import AsyncTaskHandle, Defer, TaskHandle
from penstock.engine.remembering import WaitTimeout
from penstock.engine.requests import Request
from penstock.engine.runs import Run
from penstock.engine.tasks import Task
from penstock.engine.workflow_tasks import WorkflowTask
from penstock.engine.workflows import Workflow
from penstock.errors import (
    ExecutionNotFound,
    LeaseLost,
    PenstockError,
    TaskCancelled,
    TaskFailed,
    TaskSkipped,
    UnknownTask,
    WorkflowCancelled,
    WorkflowFailed,
)
from penstock.model.context import Context
from penstock.model.events import Event
from penstock.model.retry import GiveUp, Retry, RetryAfter
from penstock.registry import Registry

__version__ = "0.1.0"

__all__ = [
    "App",
    "AsyncTaskHandle",
    "Condition",
    "Context",
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
    "Run",
    "Task",
    "TaskCancelled",
    "TaskFailed",
    "TaskHandle",
    "TaskSkipped",
    "UnknownTask",
    "WaitTimeout",
    "Workflow",
    "WorkflowCancelled",
    "WorkflowFailed",
    "WorkflowTask",
    "all_done",
    "all_succeeded",
    "any_failed",
    "any_succeeded",
    "failed",
    "none_failed",
    "skipped",
    "succeeded",
    "value",
]
