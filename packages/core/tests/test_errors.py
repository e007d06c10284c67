"""The errors: their tree, and what they carry."""

import inspect
import re
from datetime import timedelta

import pytest
from attrs import evolve

from coatcheck import errors
from coatcheck.errors import (
    AmbiguousHandler,
    CoatcheckError,
    DedupConflict,
    HandlerError,
    NotPersistable,
    QueryFailed,
    SubmitDeferred,
    TaskNotFound,
    TaskUnsuccessful,
    WaitTimeout,
)
from coatcheck.task import Outcome, TaskError
from coatcheck.testing import make_task

LINE = re.compile(r"^    (?P<indent>[│├└─ ]*)(?P<name>\w+)(?: \((?P<notes>[^)]*)\))?$")


def drawn() -> dict[str, tuple[str | None, set[str], set[str]]]:
    """Return the tree in the module's docstring: parent, built-in bases and attributes by name."""
    tree: dict[str, tuple[str | None, set[str], set[str]]] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = LINE.match(line)
        if found is None:
            continue
        depth = len(found["indent"]) // 3
        del path[depth:]
        notes = {note.strip() for note in (found["notes"] or "").split(",")} - {""}
        attributes = {note[1:] for note in notes if note.startswith(".")}
        tree[found["name"]] = (path[-1] if path else None, {n for n in notes if n[0] != "."}, attributes)
        path.append(found["name"])
    return tree


def real() -> dict[str, tuple[str | None, set[str]]]:
    """Return the classes of the module: parent and built-in bases by name."""
    classes = [
        cls
        for _, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, Exception) and cls.__module__ == errors.__name__
    ]
    ours = {
        cls.__name__: [base.__name__ for base in cls.__bases__ if issubclass(base, CoatcheckError)]
        for cls in classes
    }
    foreign = {
        cls.__name__: {base.__name__ for base in cls.__bases__ if base.__module__ == "builtins"}
        - {"Exception"}
        for cls in classes
    }
    return {name: (ours[name][0] if ours[name] else None, foreign[name]) for name in ours}


def test_the_tree_is_drawn_as_it_is() -> None:
    """The docstring shows every error under its parent, with its built-in base."""
    assert {name: (parent, bases) for name, (parent, bases, _) in drawn().items()} == real()


def test_every_error_is_public_and_documented() -> None:
    """Each class is exported and says what has happened."""
    assert set(real()) == set(errors.__all__)
    assert all(getattr(errors, name).__doc__ for name in errors.__all__)


@pytest.mark.parametrize(
    ("error", "attributes"),
    [
        (NotPersistable("params.pages[3]", "is a file"), {"path": "params.pages[3]"}),
        (AmbiguousHandler("two", ["a", "b"]), {"candidates": ("a", "b")}),
        (DedupConflict("taken", "task-1"), {"holder": "task-1"}),
        (TaskNotFound("task-1"), {"task_id": "task-1"}),
        (
            HandlerError("no", code="E1", retry_after=timedelta(seconds=1)),
            {"code": "E1", "retry_after": timedelta(seconds=1)},
        ),
        (
            SubmitDeferred("busy", rate_limited=True),
            {"rate_limited": True, "code": None, "retry_after": None},
        ),
        (QueryFailed("busy"), {"rate_limited": False, "code": None, "retry_after": None}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_carry_their_data(error: CoatcheckError, attributes: dict[str, object]) -> None:
    """What a program needs to know is an attribute, not only text."""
    assert {name: getattr(error, name) for name in attributes} == attributes


def test_a_path_leads_the_message() -> None:
    """A value that cannot be stored is named before the reason."""
    assert str(NotPersistable("params.url", "is a path")) == "params.url: is a path"


def test_what_a_task_came_to_is_told() -> None:
    """A task that ended without a result, or not in time, comes with the error, which says why."""
    task = make_task()
    assert str(task.status) in str(TaskUnsuccessful(task))
    failed = evolve(task, outcome=Outcome(error=TaskError(code="x", message="page 7 is blank")))
    assert str(TaskUnsuccessful(failed)).endswith(": page 7 is blank")
    assert TaskUnsuccessful(failed).task is failed
    timeout = WaitTimeout(task, timedelta(seconds=1.5))
    assert timeout.task is task
    assert "after 1.5 s" in str(timeout)
