"""Changed copies of frozen data."""

import copy
import pickle

import attrs
import pytest

from coatcheck.evolving import changer, constructor, evolve
from coatcheck.store import Renewal
from coatcheck.task import Progress, QueryParams, Rank, Status, Task
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


def test_a_property_is_no_field() -> None:
    """What is only looked up cannot be changed, and says so by name."""
    with pytest.raises(TypeError, match="Task has no field 'result'"):
        evolve(make_task(), result=1)


def test_what_a_constructor_makes_is_what_the_class_makes() -> None:
    """Same values, same class, same defaults, as frozen, and no default shared that could be changed."""
    task = make_task()
    fields = {each.name: getattr(task, each.name) for each in attrs.fields(Task)}
    made = constructor(Task)(**fields)
    assert made == task
    assert type(made) is Task
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        made.version = 4  # type: ignore[misc]
    assert constructor(Progress)() == Progress()
    assert constructor(Rank)(band=3) == Rank(band=3)
    assert constructor(Renewal)("id", held=True) == Renewal("id", held=True)
    make = constructor(QueryParams)
    assert make(external_task_id="x") == QueryParams(external_task_id="x")
    assert make(external_task_id="x").provider_params is not make(external_task_id="x").provider_params


def test_a_constructor_wants_what_the_class_wants() -> None:
    """What is missing or unknown is an error, and what is not named by position cannot be."""
    make = constructor(QueryParams)
    with pytest.raises(TypeError, match="external_task_id"):
        make()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="nonsense"):
        make(external_task_id="x", nonsense=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        make("x")  # type: ignore[call-arg]


def test_what_was_made_so_can_be_copied_and_pickled() -> None:
    """Objects are of the class itself in every respect."""
    progress = constructor(Progress)(query_count=3)
    assert pickle.loads(pickle.dumps(progress)) == progress
    assert copy.copy(evolve(progress, query_count=4)) == Progress(query_count=4)
    assert repr(progress) == repr(Progress(query_count=3))
    assert hash(progress) == hash(Progress(query_count=3))


def test_a_changer_changes_what_it_names() -> None:
    """Same as `evolve` with the same fields, each of which is named at every call, and no others."""
    task, other = make_task(), Progress(query_count=1)
    change = changer(Task, "version", "progress")
    assert change(task, version=3, progress=other) == evolve(task, version=3, progress=other)
    assert task.version == 0
    with pytest.raises(TypeError, match="progress"):
        change(task, version=3)
    with pytest.raises(TypeError, match="token"):
        change(task, version=3, progress=other, token=3)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        change(task, version=3, progress=other).version = 4  # type: ignore[misc]


def test_a_changer_without_names_changes_any_field() -> None:
    """None is a value like any other; what is not named is kept."""
    change = changer(Progress)
    progress = Progress(query_count=1, fraction=0.5)
    assert change(progress, fraction=None) == Progress(query_count=1)
    assert change(progress, query_count=2, lost_leases=3) == Progress(
        query_count=2, lost_leases=3, fraction=0.5
    )
    assert change(progress) == progress
    assert change(progress) is not progress


def test_a_changer_of_what_is_not_there_is_refused_at_once() -> None:
    """A slip of the pen is found when the module is imported, not when the path is taken."""
    with pytest.raises(TypeError, match="Progress has no field 'querycount'; it has: .*query_count"):
        changer(Progress, "querycount")


@attrs.frozen(kw_only=True)
class Odd:
    """Fields whose names could be taken for those of the machinery."""

    old: int
    new: int = 2
    cls: int = 3
    make: list[int] = attrs.field(factory=list)


def test_no_name_of_a_field_is_in_the_way() -> None:
    """A field may be called what it likes."""
    odd = constructor(Odd)(old=1)
    assert odd == Odd(old=1)
    assert evolve(odd, old=5, make=[1]) == Odd(old=5, make=[1])
    assert changer(Odd, "new", "cls")(odd, new=7, cls=8) == Odd(old=1, new=7, cls=8)
