from datetime import timedelta
from typing import ClassVar

import pytest
from attrs import frozen

from coatcheck import gates
from coatcheck.errors import CallbackRejected, HandlerError
from coatcheck.gates import Gate, Rate
from coatcheck.handler import CallbackRequest, QueryContext
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_http import (
    ApiKey,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    JobHandler,
    PreparedContext,
    ProviderFacts,
    StatusMap,
    UnreadableAnswer,
    UntrustedUrl,
    check_own_callback,
    first_text,
)
from coatcheck_http.testing import Claim, Reply, ScriptedServer

JOB = QueryParams(external_task_id="j 1")


@frozen(kw_only=True)
class Song:
    """What the handler of these tests takes."""

    title: str = "a"


class Songs(JobHandler[Song]):
    """A provider of the usual shape."""

    key = "songs:acme"
    default_base_url = "https://songs.example.com"
    facts: ClassVar[ProviderFacts | None] = ProviderFacts(
        name="Acme Songs",
        sources=("songs.example.com/docs",),
        submit_rate=Rate(2),
        poll_floor=timedelta(seconds=5),
    )
    statuses = StatusMap(
        waiting="queued", running="singing", succeeded="sung", failed="hoarse", canceled="silenced"
    )
    id_paths = ("song.id", "id")
    query_path = "/songs/{id}"

    def build_submit(self, params: Song, context: PreparedContext) -> HttpRequest:
        """Hand the title on, and where to call back."""
        return HttpRequest.post(
            "/songs", json={"title": params.title, "callback": self.own_callback_url(context)}
        )

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> object | None:
        """Return the text, or that it is done and failed."""
        if first_text(response.json(), "verdict") == "awful":
            return QueryResult.failed("awful", "nobody can listen to it")
        return first_text(response.json(), "text")

    def read_progress(self, response: HttpResponse) -> float | None:
        """Say half."""
        return 0.5


def answer(body: JSON) -> HttpResponse:
    """Return an answer with this body."""
    return HttpResponse(status=200, body=Reply.of(body).raw.partition(b"\r\n\r\n")[2])


def asked(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    return Songs().parse_query(answer(body), JOB, Claim().query)


def context() -> PreparedContext:
    """Return a context for building a submission."""
    claim = Claim()
    return PreparedContext(
        task_id="t1",
        idempotency_key="k1",
        account_id=None,
        now=claim.now,
        created_at=claim.now,
        deadline_at=claim.now + timedelta(hours=1),
        callback_url="https://app.example.com/callbacks",
    )


@pytest.mark.parametrize(
    ("body", "external_id", "status", "word"),
    [
        ({"id": "j1"}, "j1", Status.SUBMITTED, None),
        ({"song": {"id": 7}, "id": "other", "status": "queued"}, "7", Status.SUBMITTED, "queued"),
        ({"id": "j1", "status": "Singing"}, "j1", Status.RUNNING, "Singing"),
    ],
)
def test_an_accepted_job_has_an_id(body: JSON, external_id: str, status: Status, word: str | None) -> None:
    """At the first path that has one; a status word is used if there is one."""
    result = Songs().parse_submit(answer(body), Song(), context())
    assert result.query_params == QueryParams(external_task_id=external_id)
    assert (result.status, result.provider_status) == (status, word)


@pytest.mark.parametrize("body", [{}, {"id": None}, {"id": " "}, {"id": True}, [], "x", None])
def test_an_answer_without_an_id_is_unreadable(body: JSON) -> None:
    """So the outcome of the submission is unknown."""
    with pytest.raises(UnreadableAnswer):
        Songs().parse_submit(answer(body), Song(), context())


def test_the_id_becomes_one_segment_of_the_path() -> None:
    """Whatever it is made of."""
    assert Songs().build_query(JOB, Claim().query) == HttpRequest.get("/songs/j%201")


@pytest.mark.parametrize(
    ("body", "verdict", "word"),
    [
        ({"status": "queued"}, Verdict.RUNNING, "queued"),
        ({"status": "singing"}, Verdict.RUNNING, "singing"),
        ({"status": "sung", "text": "la"}, Verdict.SUCCEEDED, "sung"),
        ({"status": "sung", "text": None}, Verdict.INCOMPLETE, "sung"),
        ({"status": "sung", "verdict": "awful"}, Verdict.FAILED, None),
        ({"status": "hoarse"}, Verdict.FAILED, "hoarse"),
        ({"status": "silenced"}, Verdict.CANCELED, "silenced"),
        ({"status": "humming"}, Verdict.UNLISTED, "humming"),
    ],
)
def test_a_word_says_how_the_job_is(body: JSON, verdict: Verdict, word: str | None) -> None:
    """An unlisted one is an error with its name."""
    result = asked(body)
    assert (result.verdict, result.provider_status) == (verdict, word)
    assert result.progress == (0.5 if verdict is Verdict.RUNNING else None)


@pytest.mark.parametrize("body", [{}, {"status": None}, {"status": ["sung"]}, [], None])
def test_an_answer_without_a_word_is_unreadable(body: JSON) -> None:
    """It is neither running nor done."""
    with pytest.raises(UnreadableAnswer):
        asked(body)


def test_a_failed_job_says_why() -> None:
    """Code and message, where providers usually have them."""
    told = asked({"status": "hoarse", "error": {"code": "E1", "message": "a cold"}})
    assert (told.error_code, told.error_message) == ("E1", "a cold")
    flat = asked({"status": "hoarse", "error": "a cold"})
    assert (flat.error_code, flat.error_message) == (None, "a cold")
    assert asked({"status": "hoarse"}).error_message == "the job failed"


def test_the_poll_floor_is_the_documented_one() -> None:
    """Unless the class says otherwise; it is core that keeps it."""

    class Patient(Songs):
        key = "songs:patient"
        poll_floor = timedelta(minutes=1)

    assert Songs().poll_floor == timedelta(seconds=5)
    assert Patient().poll_floor == timedelta(minutes=1)


def test_documented_limits_are_suggested() -> None:
    """Under the key that the handler goes by."""
    handler = Songs(key="songs:eu")
    assert handler.suggested_gates() == (Gate(name=gates.provider("songs:eu"), rate=Rate(2)),)

    class Unknown(Songs):
        key = "songs:unknown"
        facts = None

    assert Unknown().suggested_gates() == ()
    assert Unknown().poll_floor is None


def called(url: str) -> CallbackRequest:
    """Return a call of this address."""
    query = dict(part.split("=", 1) for part in url.partition("?")[2].split("&"))
    return CallbackRequest(method="POST", path="/callbacks", headers={}, query=query)


def test_a_callback_proves_that_we_told_its_address() -> None:
    """Made of the account's callback secret, which never leaves us."""
    handler = Songs({"default": ApiKey("k", callback_secret="hush"), "silent": ApiKey("k2")})
    sent = handler.build_submit(Song(), context()).json
    url = first_text(sent, "callback") or ""
    assert "hush" not in url
    assert check_own_callback(called(url), "hush") == "t1"
    handler.check_own_callback(called(url), None)
    with pytest.raises(CallbackRejected, match="not that of the task"):
        handler.check_own_callback(called(url.replace("task=t1", "task=t2")), None)
    with pytest.raises(CallbackRejected, match="'silent' has no callback_secret"):
        handler.check_own_callback(called(url), "silent")


def test_no_secret_or_no_address_no_callback() -> None:
    """The provider is then not asked to call."""
    silent = Songs(ApiKey("k")).build_submit(Song(), context()).json
    assert first_text(silent, "callback") is None
    nowhere = Songs(ApiKey("k", callback_secret="hush"))
    assert nowhere.own_callback_url(Claim().submit) is None


async def test_a_token_is_asked_for_without_credentials() -> None:
    """The request brings its own; below the base URL, or of a trusted origin, or over https."""
    async with ScriptedServer([Reply.of({"access_token": "t"})]) as server:
        handler = Songs(ApiKey("key"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        below = await handler.request_token(HttpRequest.post("/token", form={"secret": "s"}))
        absolute = await handler.request_token(HttpRequest.post(f"{server.url}/token", form={"secret": "s"}))
        with pytest.raises(UntrustedUrl, match="in the clear"):
            await handler.request_token(HttpRequest.post("http://token.example.com/token"))
        await handler.close()
    assert below.json() == absolute.json() == {"access_token": "t"}
    assert [each.target for each in server.requests] == ["/token", "/token"]
    assert all("authorization" not in each.headers for each in server.requests)


async def test_a_token_is_not_asked_for_on_a_closed_handler() -> None:
    """Nothing is sent, and the error says what to do."""
    with pytest.raises(HandlerError, match="open"):
        await Songs().request_token(HttpRequest.post("/token"))
