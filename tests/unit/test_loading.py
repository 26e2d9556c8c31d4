"""What is shown of a module that cannot be imported."""

from pathlib import Path

import pytest

import penstock
from penstock.cli.loading import ModuleFailed


def raised_in(file: str) -> Exception:
    """Return an error as it comes out of this file, with nothing of ours before it."""
    with pytest.raises(KeyError) as raised:
        exec(compile("raise KeyError('settings')", file, "exec"), {})  # noqa: S102
    assert raised.tb.tb_next is not None
    return raised.value.with_traceback(raised.tb.tb_next)


def test_a_module_beside_ours_whose_name_begins_like_it_keeps_its_frames() -> None:
    file = f"{Path(penstock.__file__).parent}_jobs.py"
    told = str(ModuleFailed("penstock_jobs:app", because=raised_in(file)))
    assert f'File "{file}", line 1, in <module>' in told


def test_frames_of_ours_before_it_are_left_out() -> None:
    file = str(Path(penstock.__file__).with_name("targets.py"))
    told = str(ModuleFailed("jobs:app", because=raised_in(file)))
    assert "Traceback" not in told
    assert told.endswith("KeyError: 'settings'")
