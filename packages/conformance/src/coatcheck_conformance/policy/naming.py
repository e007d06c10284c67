"""Which gates an admission policy names for a task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from coatcheck.evolving import evolve
from coatcheck.gates import Gate, Gates
from coatcheck.task import TaskDraft, new_task_id
from coatcheck_conformance.drafts import make_draft
from coatcheck_conformance.policy.asking import AdmissionTrial, admission_rule
from coatcheck_conformance.policy.snapshots import ordinary_draft
from coatcheck_conformance.policy.watching import growth, staying_inside, unchanged
from coatcheck_conformance.rules import Level, Suite

__all__ = ["Naming", "require_name"]

_NAME_LENGTH = 255
_FEW = 16
_MUCH = 3_000
"""Blocks of memory, after ten thousand steps."""


def require_name(name: object) -> None:
    """Fail unless a gate can bear this name in every store."""
    assert isinstance(name, str), f"a gate's name is a string, not {name!r}"
    assert name, "a gate needs a name"
    assert len(name) <= _NAME_LENGTH, f"a gate's name has {_NAME_LENGTH} characters at most: {name!r}"
    assert "\x00" not in name, f"no store can hold a gate called {name!r}"
    assert name == name.encode("utf-8", "replace").decode("utf-8"), (
        f"no store can hold a gate called {name!r}"
    )


def _all_of(gates: Gates) -> list[str | Gate]:
    return [*gates.submit, *([] if gates.query is None else [gates.query])]


def _by_name(gates: Iterable[str | Gate]) -> dict[str, str | Gate]:
    return {each.name if isinstance(each, Gate) else each: each for each in gates}


def _names(gates: Iterable[str | Gate]) -> set[str]:
    return set(_by_name(gates))


def _drafts() -> Iterator[TaskDraft]:
    """Return drafts that have an account and a tenant, of several kinds."""
    for handler in ("kit:one", "kit:two"):
        for priority in (-5, 0, 5):
            for tenant in ("acme", "umbrella"):
                yield ordinary_draft(handler=handler, tenant=tenant, priority=priority)


class Naming(Suite):
    """`gates_for` names the gates of a task that is being submitted."""

    @admission_rule("ADMISSION-GATES-1")
    async def test_it_names_gates(self, trial: AdmissionTrial) -> None:
        """It returns `Gates`, of names and of gates with limits."""
        for draft in _drafts():
            gates: object = trial.policy.gates_for(draft)
            assert isinstance(gates, Gates), f"`gates_for` returns Gates, not {gates!r}"
            for each in _all_of(gates):
                assert isinstance(each, (str, Gate)), f"a gate is a name or a Gate, not {each!r}"

    @admission_rule("ADMISSION-GATES-2")
    async def test_names_are_valid(self, trial: AdmissionTrial) -> None:
        """Each gate has a name that every store can hold: text, not empty, of 255 characters at most."""
        for draft in _drafts():
            for each in _all_of(trial.policy.gates_for(draft)):
                require_name(each.name if isinstance(each, Gate) else each)

    @admission_rule("ADMISSION-GATES-3")
    async def test_equal_drafts_pass_equal_gates(self, trial: AdmissionTrial) -> None:
        """Deterministic: for the same draft it names the same gates, again and by another copy of the policy."""
        for draft in _drafts():
            first = _by_name(_all_of(trial.policy.gates_for(draft)))
            for policy in (trial.policy, trial.spec.create()):
                assert _by_name(_all_of(policy.gates_for(draft))) == first

    @admission_rule("ADMISSION-GATES-4")
    async def test_tasks_have_no_gates_of_their_own(self, trial: AdmissionTrial) -> None:
        """Gates are bounded in number: tasks that differ in nothing but their ids pass a few of them together."""
        draft = ordinary_draft()
        seen: set[str] = set()
        for _ in range(200):
            seen |= _names(_all_of(trial.policy.gates_for(evolve(draft, id=new_task_id()))))
        assert len(seen) <= 4 * _FEW, f"200 tasks that are alike passed {len(seen)} gates"

    @admission_rule("ADMISSION-GATES-5")
    async def test_a_task_passes_few_gates(self, trial: AdmissionTrial) -> None:
        """A claim looks at each gate of a task: there are sixteen at most."""
        for draft in _drafts():
            gates = trial.policy.gates_for(draft)
            assert len(list(gates.submit)) <= _FEW, f"a task passes {len(list(gates.submit))} gates"

    @admission_rule("ADMISSION-GATES-6")
    async def test_a_task_may_have_no_account_and_no_tenant(self, trial: AdmissionTrial) -> None:
        """No account or tenant, no such gate."""
        for account, tenant in ((None, None), ("eu", None), (None, "acme")):
            trial.policy.gates_for(ordinary_draft(account=account, tenant=tenant))
        trial.policy.gates_for(make_draft())

    @admission_rule("ADMISSION-GATES-7")
    async def test_names_do_not_run_into_each_other(self, trial: AdmissionTrial) -> None:
        """Names are built, never typed: whatever is in keys, no two share a gate that others don't share as well."""

        def shared(one: TaskDraft, other: TaskDraft) -> set[str]:
            gates_for = trial.policy.gates_for
            return _names(_all_of(gates_for(one))) & _names(_all_of(gates_for(other)))

        usual = ordinary_draft(handler="kit-one", account="north", tenant="acme")
        other = ordinary_draft(handler="kit-two", account="south", tenant="umbrella")
        expected = shared(usual, other)
        for (one, its), (two, theirs) in (
            (("kit", "a/b"), ("kit/a", "b")),
            (("kit", "a:b"), ("kit:a", "b")),
            (("kit", "a-b"), ("kit-a", "b")),
            (("kit", "a.b"), ("kit.a", "b")),
        ):
            found = shared(
                ordinary_draft(handler=one, account=its, tenant="acme"),
                ordinary_draft(handler=two, account=theirs, tenant="umbrella"),
            )
            assert found == expected, (
                f"account {its!r} of {one!r} and {theirs!r} of {two!r} share {found - expected}"
            )

    @admission_rule("ADMISSION-GATES-8")
    async def test_naming_stays_inside(self, trial: AdmissionTrial) -> None:
        """It is called in the course of `submit`, on the caller's loop: it neither sleeps nor does I/O."""
        for draft in _drafts():
            trial.policy.gates_for(draft)  # what it imports may be read
        with staying_inside("gates_for"):
            for draft in _drafts():
                trial.policy.gates_for(draft)

    @admission_rule("ADMISSION-GATES-9")
    async def test_naming_changes_no_draft(self, trial: AdmissionTrial) -> None:
        """A draft is read-only: what is persisted is not the policy's to change."""
        for draft in _drafts():
            with unchanged("gates_for", draft):
                trial.policy.gates_for(draft)

    @admission_rule("ADMISSION-GATES-10", level=Level.SHOULD)
    async def test_limits_come_without_a_pause(self, trial: AdmissionTrial) -> None:
        """A gate named there may carry limits; a pause in it would be left out."""
        for draft in _drafts():
            for each in _all_of(trial.policy.gates_for(draft)):
                assert not isinstance(each, Gate) or each.pause is None, f"{each.name!r} has a pause"

    @admission_rule("ADMISSION-GATES-11", level=Level.SHOULD)
    async def test_naming_does_not_grow(self, trial: AdmissionTrial) -> None:
        """It remembers no tasks: ten thousand of them make it no larger to speak of."""
        drafts = list(_drafts())

        def name(number: int) -> None:
            trial.policy.gates_for(evolve(drafts[number % len(drafts)], id=new_task_id()))

        grown = growth(name, 10_000)
        assert grown < _MUCH, f"it grew by {grown} blocks of memory"
