"""The spec of the handler written by hand: what its author gives to the kit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from plain_models import PlainAccount, PlainSettings, Printing, signature

from coatcheck.handler import CallbackRequest
from coatcheck.secret import Secret
from coatcheck.task import JSON, QueryParams
from coatcheck_conformance import (
    Callbacks,
    Cancelling,
    Finding,
    HandlerSpec,
    Means,
    Previous,
    QueryingMany,
    Reply,
    Script,
)

__all__ = ["SCRIPT", "WORDS", "plain_spec"]

WORDS = {
    "queued": Means.WAITING,
    "printing": Means.RUNNING,
    "printed": Means.SUCCEEDED,
    "jammed": Means.FAILED,
    "stopped": Means.CANCELED,
}
KEY, OTHER_KEY = "key-of-the-default-account", "key-of-the-european-account"
MIB = 1024 * 1024
_CALLBACK = b'{"id": "job-1"}'


def status(word: str) -> JSON:
    """Return a job with this status word."""
    return {"id": "job-1", "state": word, "link": "{server}/result.txt"}


def statuses(words: Mapping[str, str]) -> JSON:
    """Return several jobs with these words."""
    return {"jobs": {job: {**_job(word), "id": job} for job, word in words.items()}}


def _job(word: str) -> dict[str, JSON]:
    return {"state": word, "link": "{server}/result.txt"}


def callback(key: str) -> CallbackRequest:
    """Return a callback that is signed with `key`."""
    return CallbackRequest(
        method="POST", path="/callback", headers={"x-signature": signature(key, _CALLBACK)}, body=_CALLBACK
    )


SCRIPT = Script(
    job="job-1",
    accepted=Reply.of({"id": "job-1", "region": "eu"}),
    status=status,
    words=WORDS,
    done_without_result=Reply.of({"id": "job-1", "state": "printed"}),
    served={"/scan.pdf": b"%PDF", "/result.txt": b"# Printed"},
    cancel=Cancelling(confirmed=Reply.of({}), refused=Reply.of({}, status=409)),
    find=Finding(found=Reply.of({"id": "job-1", "region": "eu"}), nothing=Reply.of({})),
    many=QueryingMany(status=statuses),
    callbacks=Callbacks(authentic=callback(KEY), forged=callback(OTHER_KEY)),
    previous=Previous(
        version=1,
        params={"link": "{server}/scan.pdf"},
        query_params=QueryParams(external_task_id="job-1", provider_params={}),
    ),
)


def params(url: str) -> Printing:
    """Return good params."""
    return Printing(url=f"{url}/scan.pdf", title="Scan", options={"colour": True})


def settings(url: str) -> PlainSettings:
    """Return settings with short times and small limits."""
    return PlainSettings(base_url=url, timeout=timedelta(seconds=0.8), limit_bytes=MIB)


def plain_spec(factory: str = "plain_handler:PlainHandler", **changes: object) -> HandlerSpec:
    """Return the spec of the handler, or of another class of its kind."""
    given: dict[str, object] = {
        "key": "print:plain",
        "params": params,
        "script": SCRIPT,
        "settings": settings,
        "accounts": {"default": PlainAccount(Secret(KEY)), "eu": PlainAccount(Secret(OTHER_KEY))},
        "patience": timedelta(seconds=4),
        "answer_limit_bytes": 2 * MIB,
    }
    return HandlerSpec(factory, **{**given, **changes})  # type: ignore[arg-type]  # attrs checks
