"""Secrets: in no stored state, log, error or listing, and at no other host."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from attrs import evolve

from coatcheck.errors import NotPersistable
from coatcheck.handler import Capability
from coatcheck.persistable import to_json
from coatcheck.results import SubmitResult
from coatcheck_conformance.handler.calls import Call, texts_of
from coatcheck_conformance.handler.faults import redirects
from coatcheck_conformance.handler.replies import FOREIGN, SERVER, Reply
from coatcheck_conformance.handler.script import Means
from coatcheck_conformance.handler.server import unused_url
from coatcheck_conformance.handler.spec import HandlerHook
from coatcheck_conformance.handler.trial import Trial, handler_rule
from coatcheck_conformance.rules import Suite

__all__ = ["Secrecy"]

_ECHOING = (400, 401, 403, 429, 500)


class _Logged(logging.Handler):
    """Keeps whatever is logged, as text."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.texts.append(self.format(record))


@contextmanager
def _logging() -> Iterator[list[str]]:
    """Collect what is logged, at every level."""
    root, logged = logging.getLogger(), _Logged()
    level, disabled = root.level, logging.root.manager.disable
    root.addHandler(logged)
    root.setLevel(logging.DEBUG)
    logging.disable(logging.NOTSET)
    try:
        yield logged.texts
    finally:
        logging.disable(disabled)
        root.setLevel(level)
        root.removeHandler(logged)


def _hidden(trial: Trial, texts: Iterable[str], where: str) -> None:
    for text in texts:
        for secret in trial.spec.all_secrets:
            assert secret not in text, f"{where} holds a secret: {text.replace(secret, '<the secret>')!r}"


async def _failures(trial: Trial) -> list[Call]:
    """Let calls fail while the server says aloud which key it was sent, as some providers do."""
    said = " ".join(
        f"your key {each} is not good, you sent Bearer {each}" for each in trial.spec.secrets_of("default")
    )
    job = await trial.accepted()
    calls = [await trial.submit(handler=await trial.another(unused_url()))]
    for status in _ECHOING:
        reply = trial.error_reply(status, said)
        calls += [await trial.submit(reply), await trial.query(reply, job)]
    spoken = Reply.of(said.encode(), headers={"content-type": "text/plain"})
    return [*calls, await trial.submit(spoken), await trial.query(spoken, job)]


def _stored(value: object) -> str:
    """Return a value as the store has it; what it refuses, as it is shown."""
    try:
        return repr(to_json(value, prove=False))
    except NotPersistable:
        return repr(value)


class Secrecy(Suite):
    """Credentials never enter params, metadata, query params or errors; no secret is in the store or a log."""

    @handler_rule("HANDLER-SECRET-1", requires=(HandlerHook.ACCOUNT,))
    async def test_no_secret_is_stored(self, trial: Trial) -> None:
        """Query params, and results, hold no secret: they are stored."""
        call = await trial.submit()
        stored: list[object] = [call.submitted.query_params]
        job = call.submitted.query_params
        for word in trial.script.words:
            found = (await trial.query(trial.script.reply_of(word), job)).queried
            stored += [found.next_params, found.result]
        _hidden(trial, map(_stored, stored), "what is stored")

    @handler_rule("HANDLER-SECRET-2", requires=(HandlerHook.ACCOUNT,))
    async def test_no_secret_is_logged(self, trial: Trial) -> None:
        """No secret is in a log, at any level, whether a call goes well or the provider says the key aloud."""
        with _logging() as texts:
            handler = await trial.another()
            await trial.submit(handler=handler)
            await trial.query(trial.going_on, handler=handler)
            await _failures(trial)
        _hidden(trial, texts, "a log")

    @handler_rule("HANDLER-SECRET-3", requires=(HandlerHook.ACCOUNT,))
    async def test_no_secret_is_in_an_error(self, trial: Trial) -> None:
        """No secret is in an error or what led to it, not even one that the provider itself says aloud."""
        for call in await _failures(trial):
            _hidden(trial, texts_of(call), "an error")

    @handler_rule("HANDLER-SECRET-4", requires=(HandlerHook.ACCOUNT,))
    async def test_no_secret_is_in_a_representation(self, trial: Trial) -> None:
        """No secret is in the `repr` or `str` of a handler, of its settings or of its accounts."""
        spec = trial.spec
        shown = [trial.handler, spec.settings(trial.server.url), *spec.accounts.values()]
        if spec.secrets is not None:
            shown = shown[:2]  # accounts of a form that is not the handler's, such as plain text
        _hidden(trial, [f"{each!r} {each}" for each in shown], "a representation")

    @handler_rule("HANDLER-SECRET-5", requires=(HandlerHook.ACCOUNT, HandlerHook.DOCUMENTS))
    async def test_a_document_is_fetched_without_credentials(self, trial: Trial) -> None:
        """A document's host, which the caller names, sees no credentials."""
        params = trial.spec.params(trial.foreign.url)
        await trial.submit(params=params)
        _nothing_foreign(trial, "while the document was fetched")

    @handler_rule("HANDLER-SECRET-6", requires=(HandlerHook.ACCOUNT,))
    async def test_links_in_answers_are_followed_without_credentials(self, trial: Trial) -> None:
        """Server-supplied URLs are checked before credentials are sent: other hosts see none."""
        call = await trial.submit(_elsewhere(trial.script.accepted))
        _nothing_foreign(trial, "after a submission")
        job = call.answer.query_params if isinstance(call.answer, SubmitResult) else None
        job = job or await trial.accepted()
        await trial.query(_elsewhere(trial.script.reply_of(trial.word(Means.SUCCEEDED))), job)
        _nothing_foreign(trial, "after a query")

    @handler_rule("HANDLER-SECRET-7", requires=(HandlerHook.ACCOUNT,))
    async def test_no_redirect_is_followed_with_credentials(self, trial: Trial) -> None:
        """Redirects of queries, cancels and look-ups are not followed with credentials."""
        job = await trial.accepted()
        able = trial.handler.capabilities
        for status, reply in redirects(trial.going_on, foreign=True).items():
            await trial.query(reply, job)
            if Capability.CANCEL in able:
                await trial.cancel(reply)
            if Capability.FIND_SUBMISSION in able:
                await trial.find(reply)
            if Capability.QUERY_MANY in able:
                await trial.query_many(reply, [job])
            _nothing_foreign(trial, f"after a {status}")


def _elsewhere(reply: Reply) -> Reply:
    """Return the reply with its links to the server leading to the other one."""
    headers = {name: each.replace(SERVER, FOREIGN) for name, each in reply.headers.items()}
    return evolve(reply, body=reply.body.replace(SERVER.encode(), FOREIGN.encode()), headers=headers)


def _nothing_foreign(trial: Trial, when: str) -> None:
    for each in trial.foreign.requests:
        held = [secret for secret in trial.spec.all_secrets if each.holds(secret)]
        assert not held, f"{when} another host was sent {each} with a secret"
