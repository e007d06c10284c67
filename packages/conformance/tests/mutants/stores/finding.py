"""Mutants of S3: searching."""

from __future__ import annotations

import pytest
from attrs import evolve

from coatcheck.locked import reading
from coatcheck.locked.reading import Page
from coatcheck.store import Filter
from mutants.stores import breaks_store


@breaks_store("STORE-FIND-1")
def find_in_order_of_arrival(patch: pytest.MonkeyPatch) -> None:
    """Pages through the tasks in the order in which they came, not by id."""

    def ids_above(ledger, after):
        ids = [str(key[1]) for key in ledger.records._indexes["task"].records]
        return ids[ids.index(after) + 1 :] if after else ids

    patch.setattr(reading, "_ids_above", ids_above)


@breaks_store("STORE-FIND-2")
def find_folds_case(patch: pytest.MonkeyPatch) -> None:
    """Takes a tenant for another one whose name differs in case only."""
    good = reading._matches

    def matches(task, query):
        wanted, tenant = query.tenant_id, task.route.tenant_id
        if wanted is not None and tenant is not None and wanted.casefold() == tenant.casefold():
            query = evolve(query, tenant_id=tenant)
        return good(task, query)

    patch.setattr(reading, "_matches", matches)


@breaks_store("STORE-FIND-3")
def find_heeds_one_criterion(patch: pytest.MonkeyPatch) -> None:
    """Looks a tenant up in an index, and forgets what else was asked for."""
    good = reading._matches

    def matches(task, query):
        return good(task, query if query.tenant_id is None else Filter(tenant_id=query.tenant_id))

    patch.setattr(reading, "_matches", matches)


@breaks_store("STORE-FIND-4")
def find_has_no_latest_time(patch: pytest.MonkeyPatch) -> None:
    """Ignores `created_before`."""
    good = reading._matches

    def matches(task, query):
        return good(task, evolve(query, created_before=None))

    patch.setattr(reading, "_matches", matches)


@breaks_store("STORE-FIND-5")
def find_filters_after_limit(patch: pytest.MonkeyPatch) -> None:
    """Reads `limit` tasks and returns those of them that match."""
    good = reading.find_page

    def find_page(ledger, query, limit, after):
        page = good(ledger, Filter(), limit, after)
        return Page([task for task in page.tasks if reading._matches(task, query)], None)

    patch.setattr(reading, "find_page", find_page)
