"""Penstock seen by other systems: hooks, metrics, traces, health.

Nothing here is imported by the rest, and what needs a further package is imported only where
it is used: `penstock.integrations.prometheus` needs the extra `metrics`, and
`penstock.integrations.tracing` the extra `traces`.
"""

from penstock.engine.hooks import AttemptBegan, AttemptEnded, Hooks
from penstock.engine.vitals import Living, Vitals

__all__ = ["AttemptBegan", "AttemptEnded", "Hooks", "Living", "Vitals"]
