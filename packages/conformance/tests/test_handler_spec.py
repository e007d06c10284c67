import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from attrs import evolve
from modest_handler import Poem
from plain_handler import PlainHandler
from plain_models import PlainAccount
from plain_spec import MIB, SCRIPT, plain_spec
from pydantic import BaseModel

from coatcheck.errors import ConfigurationError, InvalidParams, LeaseLost, SubmitDeferred, SubmitRejected
from coatcheck.handler import Capability
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.secret import Secret
from coatcheck_conformance import (
    HandlerConformance,
    HandlerHook,
    HandlerSpec,
    Means,
    Outcome,
    Script,
    validate,
)
from coatcheck_conformance.handler.calls import Call, Certainty, Claim, ask_alike, certainty_of, texts_of
from coatcheck_conformance.handler.replies import Received
from coatcheck_conformance.handler.shapes import document_slots, nested_slots, slots

URL = "http://127.0.0.1:9"


# ------------------------------------------------------------------ making the handler


def test_a_spec_makes_the_handler_that_it_names() -> None:
    """The factory is called as that of a plugin's descriptor: key, accounts, settings."""
    handler = plain_spec().create(URL, accounts={})
    assert isinstance(handler, PlainHandler)
    assert handler.key == "print:plain"
    assert handler.settings.base_url == URL


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("plain_handler", "written 'package.module:attribute'"),
        ("plain_nowhere:x", "there is no 'plain_nowhere:x'"),
        ("plain_handler:Nothing", "there is no 'plain_handler:Nothing'"),
        ("builtins:dict", "no coatcheck.Handler"),
        ("builtins:int", "is called with key=, accounts= and settings="),
    ],
)
def test_a_factory_that_makes_no_handler_is_named(factory: str, message: str) -> None:
    """The message says which factory is wrong, and how."""
    with pytest.raises(ConfigurationError, match=message):
        plain_spec(factory).create(URL)


def test_a_spec_offers_capabilities_and_hooks() -> None:
    """What rules require is what the handler declares and what the spec brings along."""
    assert plain_spec().offers() == {*Capability, *HandlerHook}
    params = evolve(plain_spec(), params=lambda _: "text", accounts={})
    assert params.offers() == {*Capability, HandlerHook.WITHOUT_RESULT, HandlerHook.PREVIOUS}


def test_a_report_names_the_handler() -> None:
    """The target is the factory and the key; no secret is in it."""
    identity = plain_spec().identity()
    assert identity.target == "plain_handler:PlainHandler as 'print:plain'"
    assert identity.modules == ["plain_handler"]


def test_secrets_are_found_in_accounts() -> None:
    """Fields that are a Secret are what is looked for, unless the author names others."""
    spec = plain_spec()
    assert spec.secrets_of("default") == {"key-of-the-default-account"}
    assert len(spec.all_secrets) == 2
    named = evolve(spec, secrets={"default": ["s1"], "eu": ["s2", "s3"]})
    assert named.all_secrets == {"s1", "s2", "s3"}
    assert evolve(spec, accounts={"default": "text"}).all_secrets == frozenset()


# ------------------------------------------------------------------ what an author may forget


def script(**changes: Any) -> Script:
    """Return the good script, changed."""
    return evolve(SCRIPT, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"script": script(job=" ")}, "script.job is blank"),
        ({"script": script(job="job-2")}, "script.accepted does not hold the job's id 'job-2'"),
        ({"script": script(words={"printed": Means.SUCCEEDED})}, "no word for a job that goes on"),
        ({"script": script(words={"queued": Means.WAITING})}, "no word for a job that is done"),
        ({"script": script(served={"http://x/scan.pdf": b""})}, "give paths, such as '/document.pdf'"),
        ({"accounts": {"eu": PlainAccount(Secret("s"))}}, "no 'default'"),
        ({"accounts": {"default": "text"}}, "name their secrets as plain text"),
    ],
)
def test_what_is_missing_is_told(changes: Mapping[str, Any], message: str) -> None:
    """A spec that cannot be used says so, and what to do, before a rule is tried."""
    spec = plain_spec(**changes)
    assert any(message in each for each in spec.problems())
    report = validate(HandlerConformance, spec, only=["HANDLER-WIRE-1"])
    (result,) = [each for each in report.results if each.outcome is not Outcome.NOT_RUN]
    assert result.outcome is Outcome.FAILED
    assert message in result.reason


@pytest.mark.parametrize(
    ("rule", "missing"),
    [
        ("HANDLER-CANCEL-1", "cancel"),
        ("HANDLER-FIND-1", "find"),
        ("HANDLER-MANY-1", "many"),
        ("HANDLER-CALLBACK-1", "callbacks"),
        ("HANDLER-UPGRADE-3", "previous"),
    ],
)
def test_a_script_that_lacks_what_the_handler_declares_is_told(rule: str, missing: str) -> None:
    """What is declared is tried: without its script the rule fails, and names what to give."""
    spec = plain_spec(script=script(**{missing: None}))
    report = validate(HandlerConformance, spec, only=[rule])
    assert report.failed == {rule}
    (reason,) = [each.reason for each in report.results if each.outcome is Outcome.FAILED]
    assert f"give script.{missing}" in reason


def test_a_reply_that_cannot_be_sent_is_told() -> None:
    """A mistake in the script is not taken for one of the handler."""
    accepted = SCRIPT.accepted.with_headers(x_name="\N{SNOWMAN}")
    report = validate(
        HandlerConformance, plain_spec(script=script(accepted=accepted)), only=["HANDLER-WIRE-1"]
    )
    (reason,) = [each.reason for each in report.results if each.outcome is Outcome.FAILED]
    assert "the script has a reply that cannot be sent" in reason


def test_a_request_that_the_script_does_not_serve_is_told() -> None:
    """A handler that asks for something else first is answered 404, and the message shows what it sent."""
    spec = plain_spec(script=script(served={}))
    report = validate(HandlerConformance, spec, only=["HANDLER-WIRE-1"])
    (reason,) = [each.reason for each in report.results if each.outcome is Outcome.FAILED]
    assert "GET /scan.pdf" in reason


def test_a_suite_without_its_fixture_says_what_to_do() -> None:
    """The message names the fixture."""
    fixture = inspect.unwrap(HandlerConformance.handler_spec)
    with pytest.raises(pytest.fail.Exception, match="TestMine needs a fixture `handler_spec`"):
        fixture(type("TestMine", (HandlerConformance,), {})())


def modest_spec(factory: str = "modest_handler:ModestHandler") -> HandlerSpec:
    """Return the spec of a handler that has nothing optional."""
    return HandlerSpec(
        factory,
        key="recite:modest",
        params=lambda _: Poem("Roses are red"),
        settings=lambda url: url,
        script=Script(
            job="poem-1",
            accepted={"id": "poem-1"},
            status=lambda word: {"id": "poem-1", "state": word, "audience": 7},
            words={"reciting": Means.RUNNING, "recited": Means.SUCCEEDED},
        ),
        answer_limit_bytes=2 * MIB,
        patience=timedelta(seconds=5),
    )


@pytest.mark.slow
def test_a_modest_handler_conforms_with_a_small_spec() -> None:
    """A handler that has nothing optional is conformant; what does not apply to it is skipped."""
    report = validate(HandlerConformance, modest_spec())
    assert report.exit_code == 0, report.summary()
    skipped = {each.rule.id for each in report.results if each.outcome is Outcome.SKIPPED}
    assert {"HANDLER-ACCOUNT-1", "HANDLER-CANCEL-1", "HANDLER-PARAMS-3", "HANDLER-STATUS-5"} <= skipped


def test_a_handler_that_blocks_is_tried_all_the_same() -> None:
    """The server is on a thread of its own, so a handler that blocks its loop stalls only itself."""
    rules = ["HANDLER-WIRE-1", "HANDLER-WIRE-2", "HANDLER-WIRE-3", "HANDLER-STATUS-1"]
    report = validate(HandlerConformance, modest_spec("modest_handler:BluntHandler"), only=rules)
    assert not report.failed, report.summary()


def test_a_handler_can_be_partial_honestly() -> None:
    """What is known to be missing is told with its reason, and fails nothing."""
    spec = plain_spec("mutants.handlers.certainty:IgnoresDates")
    known = {"HANDLER-RETRY-2": "the provider sends seconds"}
    report = validate(HandlerConformance, spec, only=["HANDLER-RETRY-1", *known], expected_failures=known)
    assert not report.failed, report.summary()
    assert any("the provider sends seconds" in each for each in report.reservations)


def test_a_documented_answer_may_prove_that_nothing_was_created() -> None:
    """A 5xx that the spec declares as "not created" must defer; without that it proves nothing."""
    spec = plain_spec("mutants.handlers.certainty:TrustsServerErrors")
    rules = ["HANDLER-CERTAIN-5"]
    assert validate(HandlerConformance, spec, only=rules).failed
    assert not validate(HandlerConformance, evolve(spec, not_created_statuses=[503]), only=rules).failed


def test_what_creates_may_be_told_by_the_whole_request() -> None:
    """By method and path, or by a header or the body where one path serves all."""
    start = Received("POST", "/", {"x-target": "Start"}, b"")
    ask = Received("POST", "/", {"x-target": "Get"}, b"")
    spec = plain_spec()
    assert (spec.creates(start), spec.creates(ask)) == (True, True)
    spec = evolve(spec, creating_request=lambda request: request.headers.get("x-target") == "Start")
    assert (spec.creates(start), spec.creates(ask)) == (True, False)


def test_queries_that_are_signed_are_compared_by_their_paths() -> None:
    """Two calls ask alike if they differ no more than one call does from itself, asked again."""

    def asked(*targets: str) -> Call:
        requests = [Received("GET", each, {}, b"") for each in targets]
        return evolve(call(), requests=requests)

    assert ask_alike(asked("/a?r=1"), asked("/a?r=1"), asked("/a?r=1"))
    assert not ask_alike(asked("/a?r=1"), asked("/a?r=1"), asked("/a?r=2"))
    assert ask_alike(asked("/a?t=1"), asked("/a?t=2"), asked("/a?t=3"))
    assert not ask_alike(asked("/a?t=1"), asked("/a?t=2"), asked("/b?t=3"))


# ------------------------------------------------------------------ params of any class


@dataclass(frozen=True)
class Paper:
    """Params as a dataclass."""

    urls: tuple[str, ...]
    size: str = "A4"


class Sheet(BaseModel):
    """Params as a pydantic model."""

    url: str
    options: dict[str, str] = {}


def test_documents_are_found_in_params_of_any_class() -> None:
    """Fields with the URL of a document, or a list of such, and fields for mappings."""
    (several,) = document_slots(Paper(urls=("http://x/a",)))
    assert several.put("other") == Paper(urls=("other",))
    (one,) = document_slots(Sheet(url="https://x/a"))
    assert one.put("other") == Sheet(url="other")
    (nested,) = nested_slots(Sheet(url="https://x/a"))
    assert nested.name == "options"
    assert [each.name for each in slots(Paper(urls=("http://x/a",)))] == ["urls", "size"]
    assert slots("text") == []


# ------------------------------------------------------------------ what a call means


def call(error: BaseException | None = None, answer: object = None, *, on_wire: bool = True) -> Call:
    """Return a call that came to this."""
    claim = Claim()
    if on_wire:
        claim.ensure_held()
    return Call(answer=answer, error=error, requests=[], creating=[], claim=claim, seconds=0, gave_up=False)


@pytest.mark.parametrize(
    ("made", "certainty"),
    [
        (call(SubmitRejected("no")), Certainty.REJECTED),
        (call(SubmitDeferred("later")), Certainty.DEFERRED),
        (call(RuntimeError("what")), Certainty.UNKNOWN),
        (call(RuntimeError("what"), on_wire=False), Certainty.DEFERRED),
        (call(InvalidParams("bad"), on_wire=False), Certainty.REJECTED),
        (call(LeaseLost("gone"), on_wire=False), Certainty.DEFERRED),
        (call(answer=SubmitResult.accepted("x")), Certainty.ACCEPTED),
        (call(answer={"id": "x"}), Certainty.UNKNOWN),
    ],
)
def test_certainty_is_the_workers(made: Call, certainty: Certainty) -> None:
    """A failed submission means what the worker makes of it, by the handler's own declarations."""
    assert certainty_of(plain_spec().create(URL), made) is certainty


def test_a_claim_counts_and_can_be_lost() -> None:
    """A handler that asks is counted; once the claim is lost it is told so."""
    lost = False
    claim = Claim(lost=lambda: lost)
    claim.ensure_held()
    lost = True
    with pytest.raises(LeaseLost):
        claim.ensure_held()
    assert claim.asked == 2


def test_every_text_of_a_failure_is_looked_at() -> None:
    """Messages, codes and causes, and what an answer tells."""
    error = SubmitRejected("message-1", code="code-1")
    error.__cause__ = ValueError("cause-1")
    text = " ".join(texts_of(call(error)))
    assert all(each in text for each in ("message-1", "code-1", "cause-1"))
    failed = QueryResult.failed("code-2", "message-2", provider_status="word-2")
    text = " ".join(texts_of(call(answer=failed)))
    assert all(each in text for each in ("message-2", "code-2", "word-2"))
