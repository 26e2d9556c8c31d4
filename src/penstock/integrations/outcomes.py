"""What outcomes are called where other systems see them."""

from collections.abc import Mapping
from types import MappingProxyType

from penstock.model.outcomes import (
    Cancelled,
    Completed,
    DeferredFor,
    Failed,
    Outcome,
    Released,
    RetryScheduled,
    Suspended,
    SuspendedFor,
)

NAME_OF: Mapping[type[Outcome], str] = MappingProxyType(
    {
        Completed: "completed",
        Failed: "failed",
        RetryScheduled: "retry_scheduled",
        DeferredFor: "deferred",
        Suspended: "suspended",
        SuspendedFor: "suspended",
        Released: "released",
        Cancelled: "cancelled",
    }
)
