"""Whether a claim holds: what was claimed must no longer be there for the next caller."""

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.claiming.errors import UnheldClaim
from penstock.claiming.request import Request


def held(request: Request, answers: Iterable[Sequence[Any]]) -> None:
    """Refuse a claim after which a row still meets the criteria.

    `answers` are what `request.checks()` gave for each claimed row. Raised inside the transaction,
    the refusal rolls the claim back.
    """
    if any(any(answer) for answer in answers):
        raise UnheldClaim(request.target.name)
