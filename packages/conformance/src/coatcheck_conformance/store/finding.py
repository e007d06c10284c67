"""S3: searching tasks."""

from __future__ import annotations

from attrs import evolve

from coatcheck.store import Filter
from coatcheck.task import Status
from coatcheck_conformance.drafts import HANDLER, OTHER, make_draft, make_drafts
from coatcheck_conformance.rules import Suite
from coatcheck_conformance.store.outcomes import accepted
from coatcheck_conformance.store.time import LONG, SHORT
from coatcheck_conformance.store.trial import Trial, store_rule

__all__ = ["Finding"]


class Finding(Suite):
    """S3: `find` returns tasks by id, page by page."""

    @store_rule("STORE-FIND-1")
    async def test_pages_go_up_by_id(self, trial: Trial) -> None:
        """`find(filter, limit, after)`: tasks by id, ascending, the first `limit` whose id is above `after`."""
        tasks = await trial.add(*make_drafts(12)[::-1])
        ids = sorted(task.id for task in tasks)
        seen: list[str] = []
        after: str | None = None
        while page := await trial.store.find(Filter(), limit=5, after=after):
            assert len(page) <= 5
            seen += [task.id for task in page]
            after = page[-1].id
        assert seen == ids
        assert await trial.store.find(Filter(), after=ids[-1]) == []

    @store_rule("STORE-FIND-2")
    async def test_each_criterion_restricts(self, trial: Trial) -> None:
        """`find(filter)`: what is None or empty does not restrict, everything else does."""
        (tracked,) = await trial.started(make_draft(handler=OTHER, account="eu"))
        tracked = await trial.settle(tracked, accepted("remote-1", delay=LONG))
        keyed, tenant, plain = await trial.add(
            make_draft(dedup_key="k"), make_draft(tenant="acme", dedup_key="k"), make_draft()
        )
        everything = {task.id for task in (tracked, keyed, tenant, plain)}
        expected: list[tuple[Filter, set[str]]] = [
            (Filter(), everything),
            (Filter(statuses=[Status.SUBMITTED]), {tracked.id}),
            (Filter(statuses=[Status.SUBMITTED, Status.PENDING_SUBMIT]), everything),
            (Filter(statuses=[Status.FAILED]), set()),
            (Filter(handler_keys=[OTHER]), {tracked.id}),
            (Filter(handler_keys=[OTHER, HANDLER]), everything),
            (Filter(tenant_id="acme"), {tenant.id}),
            (Filter(tenant_id="Acme"), set()),
            (Filter(account_id="eu"), {tracked.id}),
            (Filter(dedup_key="k"), {keyed.id, tenant.id}),
            (Filter(external_task_id="remote-1"), {tracked.id}),
            (Filter(external_task_id="remote-2"), set()),
        ]
        for query, ids in expected:
            assert {task.id for task in await trial.store.find(query)} == ids, query

    @store_rule("STORE-FIND-3")
    async def test_criteria_add_up(self, trial: Trial) -> None:
        """Tasks that fit every criterion of the filter."""
        tasks = await trial.add(
            *(
                make_draft(tenant=tenant, account=account, handler=handler)
                for tenant in ("a", "b")
                for account in ("x", "y")
                for handler in (HANDLER, OTHER)
            )
        )
        query = Filter(tenant_id="b", account_id="x", handler_keys=[OTHER], statuses=[Status.PENDING_SUBMIT])
        assert await trial.store.find(query) == [tasks[5]]
        assert await trial.store.find(evolve(query, statuses=[Status.SUCCEEDED])) == []

    @store_rule("STORE-FIND-4")
    async def test_times_of_creation_restrict(self, trial: Trial) -> None:
        """`created_before` and `created_after` leave out what was created later or earlier."""
        (early,) = await trial.add()
        between = await trial.time.pass_(SHORT / 10)
        await trial.time.pass_(SHORT / 10)
        (late,) = await trial.add()
        assert await trial.store.find(Filter(created_before=between)) == [early]
        assert await trial.store.find(Filter(created_after=between)) == [late]
        assert await trial.store.find(Filter(created_after=between, created_before=between)) == []

    @store_rule("STORE-FIND-5")
    async def test_a_filtered_search_can_be_paged(self, trial: Trial) -> None:
        """The first `limit` of those that the filter lets through, however few they are among many."""
        tasks = await trial.add(*(make_draft(tenant="rare" if n % 50 == 0 else "common") for n in range(300)))
        rare = sorted(task.id for task in tasks if task.route.tenant_id == "rare")
        first = await trial.store.find(Filter(tenant_id="rare"), limit=4)
        rest = await trial.store.find(Filter(tenant_id="rare"), limit=4, after=first[-1].id)
        assert [task.id for task in (*first, *rest)] == rare
