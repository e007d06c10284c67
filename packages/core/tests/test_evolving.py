"""Changed copies of frozen data."""

import attrs
import pytest

from coatcheck.evolving import evolve
from coatcheck.task import Progress, Status
from coatcheck.testing import make_task


def test_a_copy_is_what_attrs_would_have_made() -> None:
    """Same values, same class, and the original stays as it was."""
    task = make_task()
    changed = evolve(task, status=Status.SUBMITTING, version=3)
    assert changed == attrs.evolve(task, status=Status.SUBMITTING, version=3)
    assert task.version == 0
    assert evolve(task) == task
    assert evolve(task) is not task
    assert evolve(Progress(), query_count=2) == Progress(query_count=2)


def test_a_copy_is_as_frozen_as_its_original() -> None:
    """Nobody can change it."""
    changed = evolve(make_task(), version=3)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        changed.version = 4  # type: ignore[misc]


def test_an_unknown_field_is_refused_by_name() -> None:
    """A slip of the pen is an error, with the names there are."""
    with pytest.raises(TypeError, match="Progress has no field 'querycount'; it has: .*query_count"):
        evolve(Progress(), querycount=1)
