from coatcheck_sandbox import Answer, Drop, Operation, Stall
from coatcheck_sandbox.plan import FaultPlan


def test_faults_strike_in_order_and_so_often() -> None:
    """The first suitable fault strikes until it is used up, then the next."""
    plan = FaultPlan()
    plan.add(Drop(times=2, operation="submit"), Answer(times=1))
    kinds = [plan.pick(Operation.SUBMIT, "a.png") for _ in range(4)]
    assert [fault and fault.kind for fault in kinds] == ["drop", "drop", "answer", None]


def test_other_operations_and_documents_pass() -> None:
    """A fault for one operation and one document leaves all else alone."""
    plan = FaultPlan()
    plan.add(Drop(operation="submit", document="a.png"))
    assert plan.pick(Operation.QUERY, "a.png") is None
    assert plan.pick(Operation.SUBMIT, "b.png") is None
    assert plan.pick(Operation.SUBMIT, "a.png") is not None


def test_chance_is_repeatable() -> None:
    """The same seed strikes the same requests, in about the share that was ordered."""

    def strikes(plan: FaultPlan) -> list[bool]:
        plan.add(Drop(times=None, probability=0.3))
        return [plan.pick(Operation.QUERY, None) is not None for _ in range(1000)]

    plan = FaultPlan(seed=7)
    first = strikes(plan)
    assert 250 < sum(first) < 350
    plan.clear()
    assert strikes(plan) == first
    assert strikes(FaultPlan(seed=8)) != first


def test_pending_faults_count_down() -> None:
    """What is left can be seen."""
    plan = FaultPlan()
    plan.add(Drop(times=3), Stall(times=None))
    plan.pick(Operation.QUERY, None)
    assert plan.pending() == [Drop(times=2), Stall(times=None)]
