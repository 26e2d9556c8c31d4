"""The same page on the other database: a file of its own, so that two cores share the minutes."""

from pathlib import Path

import pytest

from tests.docs.commands import Tour, check
from tests.docs.settling import Words


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.postgres
def test_commands_say_the_same_on_postgres(
    tmp_path: Path, postgres_url: str, postgres_schema: str
) -> None:
    settings = f'[database]\nurl = "{postgres_url}"\nschema = "{postgres_schema}"\n'
    check(Tour("postgres", tmp_path, settings, Words(tmp_path, postgres_url, postgres_schema)))
