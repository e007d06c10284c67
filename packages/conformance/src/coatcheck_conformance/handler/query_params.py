"""Query params: valid, JSON, stable, enough for any other worker, and readable after an upgrade."""

from __future__ import annotations

from typing import cast

from coatcheck import codec
from coatcheck.persistable import from_json
from coatcheck.results import QueryResult
from coatcheck.task import JSON, QueryParams
from coatcheck_conformance.handler.calls import ask_alike
from coatcheck_conformance.handler.replies import SERVER
from coatcheck_conformance.handler.script import Previous
from coatcheck_conformance.handler.spec import HandlerHook
from coatcheck_conformance.handler.trial import Trial, handler_rule
from coatcheck_conformance.rules import Suite

__all__ = ["Stored", "Upgrading"]


def _back(params: QueryParams) -> QueryParams:
    """Return query params as the store gives them back."""
    provider_params = codec.loads(codec.dumps(dict(params.provider_params), path="provider_params"))
    return QueryParams(
        external_task_id=params.external_task_id, provider_params=cast("dict[str, JSON]", provider_params)
    )


def _filled(value: JSON, url: str) -> JSON:
    """Return stored JSON with the server's url filled in."""
    return codec.loads(codec.dumps(value).replace(SERVER, url))


class Stored(Suite):
    """Query params are `external_task_id` + `provider_params`, an opaque JSON object owned by the handler."""

    @handler_rule("HANDLER-STORED-1")
    async def test_they_survive_the_round_trip(self, trial: Trial) -> None:
        """Query params are JSON, come back equal from the store, and then lead to the same query."""
        job = await trial.accepted()
        back = _back(job)
        assert back == job, f"{job!r} comes back as {back!r}"
        one, again, other = [await trial.query(trial.going_on, each) for each in (job, job, back)]
        assert ask_alike(one, again, other), f"what comes back leads to {other.traffic}, not to {one.traffic}"

    @handler_rule("HANDLER-STORED-2")
    async def test_they_are_stable(self, trial: Trial) -> None:
        """Query params are stable: the same answer of the provider gives the same ones, also elsewhere."""
        jobs = [await trial.accepted() for _ in range(2)]
        elsewhere = (await trial.submit(handler=await trial.another())).submitted.query_params
        assert jobs[0] == jobs[1] == elsewhere, (
            f"the same answer gave {jobs[0]!r}, {jobs[1]!r} and {elsewhere!r}"
        )

    @handler_rule("HANDLER-STORED-3")
    async def test_another_worker_can_query_with_them(self, trial: Trial) -> None:
        """Query params are all that a query needs: another worker, which never saw the submission, asks the same."""
        job = await trial.accepted()
        here, again = [await trial.query(trial.going_on, job) for _ in range(2)]
        there = await trial.query(trial.going_on, _back(job), handler=await trial.another())
        assert there.queried == here.queried
        assert ask_alike(here, again, there), f"another worker sends {there.traffic}, not {here.traffic}"


class Upgrading(Suite):
    """Workers of version N read what version N-1 has stored."""

    def _previous(self, trial: Trial) -> Previous:
        previous = trial.script.previous
        assert previous is not None
        assert previous.version < trial.handler.params_version, (
            f"script.previous.version is {previous.version}, and the handler's params_version "
            f"{trial.handler.params_version}"
        )
        return previous

    @handler_rule("HANDLER-UPGRADE-1", requires=(HandlerHook.PREVIOUS,))
    async def test_params_of_the_version_before_are_submitted(self, trial: Trial) -> None:
        """`upgrade_params` brings stored params of the version before to the present shape."""
        previous = self._previous(trial)
        if previous.params is None:
            return
        stored = _filled(previous.params, trial.server.url)
        raw = trial.handler.upgrade_params(stored, previous.version)
        params: object = from_json(raw, type(trial.params))
        call = await trial.submit(params=params)
        assert call.creating, f"params of version {previous.version} came to {call.told}"

    @handler_rule("HANDLER-UPGRADE-2", requires=(HandlerHook.PREVIOUS,))
    async def test_query_params_of_the_version_before_are_queried(self, trial: Trial) -> None:
        """`upgrade_query_params` brings stored query params of the version before to the present shape."""
        previous = self._previous(trial)
        if previous.query_params is None:
            return
        stored = QueryParams(
            external_task_id=previous.query_params.external_task_id,
            provider_params=cast(
                "dict[str, JSON]", _filled(dict(previous.query_params.provider_params), trial.server.url)
            ),
        )
        upgraded = trial.handler.upgrade_query_params(stored, previous.version)
        assert upgraded.external_task_id == stored.external_task_id
        call = await trial.query(trial.going_on, upgraded)
        assert isinstance(call.answer, QueryResult), f"a query with {upgraded!r} came to {call.told}"

    @handler_rule("HANDLER-UPGRADE-3")
    async def test_a_new_version_can_show_the_one_before(self, trial: Trial) -> None:
        """A handler whose `params_version` was raised is tried on what the version before has stored."""
        assert trial.handler.params_version >= 1, "params_version counts from 1"
        assert trial.handler.params_version == 1 or trial.script.previous is not None, (
            f"params_version is {trial.handler.params_version}; give script.previous, a payload as it was stored "
            "by the version before"
        )
