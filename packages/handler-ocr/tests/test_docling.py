import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import evolve

from coatcheck.errors import (
    CallbackRejected,
    ConfigurationError,
    HandlerError,
    InvalidParams,
    QueryFailed,
    SubmitDeferred,
    SubmitRejected,
    UnknownAccount,
)
from coatcheck.handler import CallbackRequest
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_conformance import HandlerConformance, HandlerSpec, Means, Script
from coatcheck_conformance import Reply as KitReply
from coatcheck_conformance.handler.script import Callbacks
from coatcheck_handler_ocr import HttpSettings, OcrRequest, OcrResult
from coatcheck_handler_ocr.docling import DoclingAccount, DoclingOcr, DoclingOcrSettings
from coatcheck_handler_ocr.sources import OcrSources
from coatcheck_http import (
    HttpRequest,
    HttpResponse,
    OutcomeUnknown,
    PreparedContext,
    UnreadableAnswer,
    own_callback_url,
)
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import Answer, FailingJob, HiddenJob, Operation, SandboxServer, StatusWord, describe
from coatcheck_sandbox.providers.docling import DoclingProtocol

MIB = 1024 * 1024
HOOK = "https://app.example/hooks/docling"
SERVER = "https://docling.example"
JOB = QueryParams(external_task_id="d1")
EMPTY: dict[str, JSON] = {"filename": "a.pdf", "md_content": None, "json_content": None, "text_content": None}


def task(word: str, **changes: JSON) -> dict[str, JSON]:
    """Return a task with this status word, as the server answers submissions and polls."""
    return {
        "task_id": "d1",
        "task_type": "convert",
        "task_status": word,
        "task_position": 1 if word == "pending" else None,
        "task_meta": None,
        "error_message": "Internal processing error." if word == "failure" else None,
        "failure": None,
        **changes,
    }


def result(status: str = "success", **changes: JSON) -> dict[str, JSON]:
    """Return a result, as the server answers `/v1/result`."""
    return {
        "document": {**EMPTY, "md_content": "# Claim ticket"},
        "status": status,
        "errors": [],
        "processing_time": 0.5,
        "timings": {},
        "confidence": None,
        **changes,
    }


def error(message: str, **changes: JSON) -> JSON:
    """Return one error of a result."""
    return {
        "component_type": "user_input",
        "module_name": "",
        "error_message": message,
        "category": "source_unavailable",
        "page_no": None,
        **changes,
    }


def refusal(kind: str, place: list[JSON], message: str) -> JSON:
    """Return what the server answers, with 422, to a request that does not fit its schema."""
    return {"detail": [{"type": kind, "loc": place, "msg": message}]}


def callback(secret: str) -> CallbackRequest:
    """Return a callback as the server sends it, to an address that was made with `secret`."""
    query = own_callback_url(HOOK, "task-1", secret).partition("?")[2]
    body = {"task_id": "d1", "progress": {"kind": "set_num_docs", "num_docs": 1}}
    return CallbackRequest(
        method="POST",
        path="/hooks/docling",
        headers={"content-type": "application/json"},
        query=dict(each.split("=", 1) for each in query.split("&")),
        body=json.dumps(body).encode(),
    )


# Every promise of a handler.


def settings(url: str) -> DoclingOcrSettings:
    """Return settings with short times and small limits."""
    return DoclingOcrSettings(base_url=url, read_timeout=timedelta(seconds=1), max_answer_bytes=2 * MIB)


def docling_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the server as it answers; the command `coatcheck-conformance` takes it, too."""
    return HandlerSpec(
        "coatcheck_handler_ocr.docling:DoclingOcr",
        key="ocr:docling",
        params=lambda url: OcrRequest(url=f"{url}/files/scan.pdf"),
        settings=settings,
        accounts={
            "default": DoclingAccount("docling-key-of-one", callback_secret="docling-hook-of-one"),
            "other": DoclingAccount("docling-key-of-another"),
        },
        script=Script(
            job="d1",
            accepted=KitReply.of(task("pending")),
            status=task,
            words={word: Means(state) for word, state in DoclingOcr.statuses.words.items()},
            rejected=KitReply.of(
                refusal("url_parsing", ["body", "sources", 0, "http", "url"], "no URL"), status=422
            ),
            rate_limited=KitReply.of({"detail": "slow down"}, status=429),
            not_found=KitReply.of({"detail": "Task not found."}, status=404),
            error=lambda message: {"detail": message},
            served={"GET /v1/result/d1": result()},
            callbacks=Callbacks(
                authentic=callback("docling-hook-of-one"), forged=callback("somebody-elses-hook")
            ),
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestDoclingOcr(HandlerConformance):
    """The handler of docling-serve keeps every promise."""

    require = ("account", "two accounts", "document fields", "nested fields", "parse_callback")

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The server as it answers."""
        return docling_spec()


# On samples of answers, as seen.


def answer(body: JSON, status: int = 200) -> HttpResponse:
    """Return an answer of the server."""
    return HttpResponse(status=status, body=json.dumps(body).encode())


def made(account: object = None, **changes: object) -> DoclingOcr:
    """Return a handler, closed."""
    return DoclingOcr(account, settings=DoclingOcrSettings(base_url=SERVER, **changes))  # type: ignore[arg-type] # as tests like


def read(body: JSON) -> QueryResult:
    """Return what a poll answered with `body` comes to."""
    return made().parse_query(answer(body), JOB, Claim().query)


@pytest.mark.parametrize(
    ("word", "verdict", "status"),
    [
        ("pending", Verdict.RUNNING, Status.SUBMITTED),
        ("started", Verdict.RUNNING, Status.RUNNING),
        ("success", Verdict.SUCCEEDED, Status.RUNNING),
        ("partial_success", Verdict.SUCCEEDED, Status.RUNNING),
        ("failure", Verdict.FAILED, Status.RUNNING),
        ("skipped", Verdict.FAILED, Status.RUNNING),
        ("cancelled", Verdict.UNLISTED, Status.RUNNING),
    ],
)
def test_every_word_is_mapped(word: str, verdict: Verdict, status: Status) -> None:
    """A word that is not in the server's schema is unlisted."""
    found = read(task(word))
    assert (found.verdict, found.status, found.provider_status) == (verdict, status, word)


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({}, None, "Internal processing error."),
        (
            {
                "failure": {
                    "category": "timeout",
                    "message": "too slow",
                    "retryable": True,
                    "phase": "execution",
                    "details": {},
                }
            },
            "timeout",
            "too slow",
        ),
        ({"error_message": None}, None, "the job failed"),
    ],
)
def test_a_failed_task_says_why(changes: dict[str, JSON], code: str | None, message: str) -> None:
    """In `failure` if the server tells it, else in `error_message`."""
    found = read(task("failure", **changes))
    assert (found.error_code, found.error_message) == (code, message)


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ({"detail": "Task not found."}, None, "Task not found."),
        (
            refusal("enum", ["body", "options", "to_formats", 0], "Input should be 'md'"),
            "enum",
            "body.options.to_formats.0: Input should be 'md'",
        ),
        (refusal("missing", [], "Field required"), "missing", ": Field required"),
        ({"detail": [{"type": "x", "msg": "no place"}]}, "x", "no place"),
        ({"other": 1}, None, '{"other": 1}'),
    ],
)
def test_errors_say_what_was_wrong_and_where(body: JSON, code: str | None, message: str) -> None:
    """The server's detail is a sentence, or a list with places in the request."""
    found = made().read_error(answer(body, 422))
    assert found is not None
    assert (found.code, found.message) == (code, message)


def test_an_error_that_is_no_json_is_told_as_it_is() -> None:
    """Such as that of a gateway."""
    found = made().read_error(HttpResponse(status=502, body=b"<html>bad gateway</html>"))
    assert found is not None
    assert (found.code, found.message) == (None, "<html>bad gateway</html>")


@pytest.mark.parametrize(
    ("body", "markdown", "warnings"),
    [
        (result(), "# Claim ticket", ()),
        (
            result("partial_success", errors=[error("dark", page_no=3), error("torn"), {"category": "x"}, 7]),
            "# Claim ticket",
            ("page 3: dark", "torn"),
        ),
        (
            result(errors=[error("403 for url: https://files.example/a.pdf?signature=s3cret&x=1")]),
            "# Claim ticket",
            ("403 for url: https://files.example/a.pdf?signature=***&x=1",),
        ),
        (result(document={**EMPTY, "md_content": ""}), "", ("the provider found no text",)),
        (result(errors="none", processing_time=None), "# Claim ticket", ()),
    ],
)
async def test_text_and_warnings_are_found(body: JSON, markdown: str, warnings: tuple[str, ...]) -> None:
    """Of a document that was read in part, too."""
    found = await fetched(Reply.of(body))
    assert isinstance(found.result, OcrResult)
    assert (found.result.markdown, found.result.warnings) == (markdown, warnings)


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (
            result("failure", document=EMPTY, errors=[error("503 Server Error for url"), error("again")]),
            "source_unavailable",
            "503 Server Error for url; again",
        ),
        (
            result("skipped", document=EMPTY, errors=[error("File format not allowed", category="policy")]),
            "policy",
            "File format not allowed",
        ),
        (result("failure", document=EMPTY), None, "the document is failure"),
        (
            {"kind": "TaskFailureResult", "failure": {"category": "capacity", "message": "no room"}},
            "capacity",
            "no room",
        ),
        ({"kind": "TaskFailureResult", "failure": {"category": "capacity"}}, "capacity", "the job failed"),
    ],
)
async def test_a_success_may_hold_a_failure(body: JSON, code: str | None, message: str) -> None:
    """The task of a document that cannot be had is a success; its result says that it failed."""
    found = await fetched(Reply.of(body))
    assert (found.verdict, found.error_code, found.error_message) == (Verdict.FAILED, code, message)


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        (Reply.of({"detail": "Task result not found. Please wait for a completion status."}, status=404), 0),
        (Reply.of({"detail": "Task not found."}, status=404), 0),
        (Reply.of(result(document=EMPTY)), 0),
        (Reply.of(result(document={"filename": "a", "md_content": 7})), 0),
        (Reply.of(result("started")), 1),
        (Reply.of(result("aborted")), 2),
    ],
)
async def test_a_result_that_is_not_there_is_asked_for_again(reply: Reply, verdict: int) -> None:
    """It has been cleared, or is not there yet; the worker asks a few times."""
    wanted = (Verdict.INCOMPLETE, Verdict.RUNNING, Verdict.UNLISTED)[verdict]
    assert (await fetched(reply)).verdict is wanted


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply.of({"detail": "Unauthorized"}, status=401), "auth"),
        (Reply.of({"detail": "slow"}, status=429, headers={"retry-after": "7"}), "rate_limited"),
        (Reply.of({"detail": "busy"}, status=503), "provider_unavailable"),
        (Reply.of(b"PK\x03\x04", headers={"content-type": "application/zip"}), "unreadable_answer"),
        (Reply.of({"num_converted": 1}), "unreadable_answer"),
    ],
)
async def test_an_error_instead_of_a_result_fails_the_query(reply: Reply, code: str) -> None:
    """Which is asked again later; the job is not lost."""
    with pytest.raises(QueryFailed) as caught:
        await fetched(reply)
    assert (caught.value.code, caught.value.rate_limited) == (code, code == "rate_limited")
    assert caught.value.retry_after == (timedelta(seconds=7) if code == "rate_limited" else None)


async def fetched(reply: Reply) -> QueryResult:
    """Return what the query of a task that is a success comes to, if its result is answered with `reply`."""
    async with ScriptedServer([Reply.of(task("success")), reply]) as server:
        handler = DoclingOcr(DoclingAccount("docling-key"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        try:
            return await handler.query(JOB, Claim().query)
        finally:
            await handler.close()
            assert [each.target for each in server.requests] == ["/v1/status/poll/d1", "/v1/result/d1"]
            assert {each.headers["x-api-key"] for each in server.requests} == {"docling-key"}


async def test_other_sources_are_completed_as_usual() -> None:
    """A subclass may find the text elsewhere."""
    found = await made().fetch_result(QueryResult.succeeded(OcrSources(markdown="# T")), Claim().query)
    assert isinstance(found.result, OcrResult)
    assert found.result.markdown == "# T"


BOX: JSON = {"l": 10, "t": 90, "r": 60, "b": 80, "coord_origin": "BOTTOMLEFT"}
DOCUMENT: JSON = {
    "body": {"children": [{"$ref": "#/texts/1"}, {"$ref": "#/groups/0"}, {"$ref": "#/texts/1"}, {}, 7]},
    "groups": [{"label": "list", "children": [{"$ref": "#/texts/0"}, {"$ref": "#/tables/0"}]}],
    "texts": [
        {
            "label": "text",
            "text": "one two",
            "prov": [
                {"page_no": 1, "bbox": {"l": 1, "t": 2, "r": 3, "b": 4}, "charspan": [0, 3]},
                {"page_no": 2, "bbox": {"l": 1, "t": "x"}, "charspan": [4, 7]},
            ],
        },
        {"label": "title", "text": "Title", "prov": [{"page_no": 1, "bbox": BOX}]},
    ],
    "tables": [
        {
            "label": "table",
            "prov": [{"page_no": 2, "bbox": BOX}],
            "data": {"grid": [[{"text": "Item"}, {"text": "Count"}], [{"text": "coat"}, {}]]},
        }
    ],
    "pages": {
        "1": {"page_no": 1, "size": {"width": 200, "height": 100}},
        "2": {"page_no": 2},
        "3": {"size": {}},
    },
}


async def test_pages_have_blocks_with_places() -> None:
    """In reading order, each once, measured from the upper left; a text over two pages is on both."""
    document: JSON = {"md_content": "# T", "text_content": "T", "json_content": DOCUMENT}
    found = (await fetched(Reply.of(result(document=document)))).result
    assert isinstance(found, OcrResult)
    first, second = found.pages
    assert (first.index, first.width, first.height, first.markdown) == (0, 200, 100, "Title\n\none")
    assert [(each.kind, each.text, each.box) for each in first.blocks] == [
        ("title", "Title", (10, 10, 60, 20)),
        ("text", "one", (1, 2, 3, 4)),
    ]
    assert (second.index, second.width, second.height) == (1, None, None)
    assert [(each.kind, each.text, each.box) for each in second.blocks] == [
        ("text", "two", None),
        ("table", "Item | Count\ncoat | ", None),
    ]
    assert (found.text, found.usage) == ("T", {"processing_time": 0.5})
    to_json(found)


# Submissions.


def body_of(request: OcrRequest, account: object = None, callback_url: str | None = None) -> JSON:
    """Return the body of the creating request."""
    claim = evolve(Claim().submit, callback_url=callback_url)
    sent = made(account).build_submit(request, PreparedContext.of(claim))
    assert (sent.method, sent.url) == ("POST", "/v1/convert/source/async")
    return sent.json


def test_the_document_is_named_and_choices_are_sent() -> None:
    """Under the server's names; options lie beneath, and what nobody chose is left to the server."""
    request = OcrRequest(
        url="https://files.example/a.pdf",
        pages="2-5",
        languages=("de", "en"),
        tables=False,
        formulas=True,
        outputs=("markdown", "text", "json"),
        options={"do_ocr": False, "to_formats": ["html"], "page_range": [9, 9]},
    )
    assert body_of(request) == {
        "sources": [{"kind": "http", "url": "https://files.example/a.pdf"}],
        "options": {
            "do_ocr": False,
            "to_formats": ["md", "text", "json"],
            "page_range": [2, 5],
            "ocr_lang": ["de", "en"],
            "do_table_structure": False,
            "do_formula_enrichment": True,
        },
    }
    plain = body_of(OcrRequest(url="https://files.example/a.pdf", outputs=("text",)))
    assert plain == {
        "sources": [{"kind": "http", "url": "https://files.example/a.pdf"}],
        "options": {"to_formats": ["md", "text"]},
    }


@pytest.mark.parametrize(("pages", "range_"), [("3", [3, 3]), ("1-10", [1, 10]), ("4-4", [4, 4])])
def test_one_range_of_pages_can_be_asked_for(pages: str, range_: list[JSON]) -> None:
    """First and last page, both counted from 1."""
    body = body_of(OcrRequest(url="https://files.example/a.pdf", pages=pages))
    assert isinstance(body, dict)
    assert body["options"] == {"to_formats": ["md"], "page_range": range_}


@pytest.mark.parametrize(
    "changes",
    [
        {"pages": "1-3,7"},
        {"pages": "9-3"},
        {"file_name": "a.pdf"},
        {"model": "standard"},
        {"outputs": ("html",)},
    ],
)
def test_what_the_server_cannot_do_is_refused(changes: dict[str, object]) -> None:
    """Before anything is sent, with what to do."""
    with pytest.raises(InvalidParams, match="ocr:docling"):
        made().validate(OcrRequest(url="https://files.example/a.pdf", **changes))  # type: ignore[arg-type] # a table
    made().validate(OcrRequest(url="https://files.example/a.pdf", pages="2"))


def test_the_server_is_told_our_own_address() -> None:
    """With a proof in it, if the account has a secret for it and the application an address."""
    request = OcrRequest(url="https://files.example/a.pdf")
    account = DoclingAccount(callback_secret="hook-secret")
    body = body_of(request, account, HOOK)
    assert isinstance(body, dict)
    assert body["callbacks"] == [{"url": own_callback_url(HOOK, "task-1", "hook-secret")}]
    for one in (body_of(request, account), body_of(request, DoclingAccount("key"), HOOK)):
        assert isinstance(one, dict)
        assert "callbacks" not in one


async def test_without_an_account_no_callback_is_taken() -> None:
    """Nobody could tell it from a forged one."""
    with pytest.raises(CallbackRejected, match="callback_secret"):
        await made().parse_callback(callback("hook-secret"), None)


# Accounts.


async def sent_headers(account: object, **changes: object) -> dict[str, str]:
    """Return the headers of a submission."""
    async with ScriptedServer([Reply.of(task("pending"))]) as server:
        handler = DoclingOcr(account, settings=DoclingOcrSettings(base_url=server.url, **changes))  # type: ignore[arg-type] # as tests like
        await handler.open()
        try:
            await handler.submit(OcrRequest(url="https://files.example/a.pdf"), Claim().submit)
        finally:
            await handler.close()
        return dict(server.requests[0].headers)


async def test_without_an_account_nothing_is_proven() -> None:
    """A server without a key is asked without one; an account with nothing in it is the same."""
    for account in (None, DoclingAccount()):
        assert {"x-api-key", "x-tenant-id", "authorization"} & set(await sent_headers(account)) == set()


async def test_an_account_that_is_named_has_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there are none at all; and the default one, where there are others."""
    request = OcrRequest(url="https://files.example/a.pdf")
    with pytest.raises(UnknownAccount):
        await made().submit(request, Claim(account_id="acme").submit)
    with pytest.raises(UnknownAccount):
        await made({"acme": DoclingAccount()}).submit(request, Claim().submit)
    monkeypatch.setenv("DOCLING_KEY", "from-the-environment")
    headers = await sent_headers(DoclingAccount.from_env("DOCLING_KEY"))
    assert headers["x-api-key"] == "from-the-environment"


async def test_a_tenant_is_named() -> None:
    """In the server's header, whose name its settings can change."""
    account = DoclingAccount("k", tenant="acme")
    assert (await sent_headers(account))["x-tenant-id"] == "acme"
    assert (await sent_headers(account, tenant_header="X-Who"))["x-who"] == "acme"


@pytest.mark.parametrize("tenant", ["", " acme", "a\nb", "é"])
def test_a_tenant_that_no_header_can_carry_is_refused(tenant: str) -> None:
    """When the account is made."""
    with pytest.raises(ConfigurationError, match="tenant"):
        DoclingAccount(tenant=tenant)


def test_the_server_has_to_be_named() -> None:
    """There is no other; plain http to another machine only if that is allowed."""
    with pytest.raises(ConfigurationError, match="base_url"):
        DoclingOcr()
    with pytest.raises(ConfigurationError, match="allow_http"):
        DoclingOcr(settings=HttpSettings(base_url="http://docling:5001"))
    DoclingOcr(settings=HttpSettings(base_url="http://docling:5001", allow_http=True))
    with pytest.raises(ConfigurationError, match="tenant_header"):
        DoclingOcrSettings(tenant_header="a b")
    assert made().suggested_gates() == ()


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A server that speaks docling-serve's protocol, without an OCR engine."""
    with SandboxServer(protocols=[DoclingProtocol()], recognizer=describe) as server:
        yield server


@pytest.fixture
async def opened(sandbox: SandboxServer) -> AsyncIterator[Callable[[object], DoclingOcr]]:
    """Makes handlers that are closed at the end."""
    handlers = []

    def make(account: object) -> DoclingOcr:
        handlers.append(DoclingOcr(account, settings=DoclingOcrSettings(base_url=f"{sandbox.url}/docling")))
        return handlers[-1]

    yield make
    for each in handlers:
        await each.close()


@pytest.fixture
async def handler(opened: Callable[[object], DoclingOcr]) -> DoclingOcr:
    """A handler that is open."""
    found = opened(DoclingAccount("sandbox-key"))
    await found.open()
    return found


async def submitted(handler: DoclingOcr, sandbox: SandboxServer, url: str, **changes: object) -> QueryParams:
    """Submit a document, and return what its queries need."""
    accepted = await handler.submit(OcrRequest(url=url, **changes), Claim().submit)  # type: ignore[arg-type] # as tests like
    assert (accepted.status, accepted.provider_status) == (Status.SUBMITTED, "pending")
    assert accepted.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return accepted.query_params


async def test_a_document_is_read(handler: DoclingOcr, sandbox: SandboxServer) -> None:
    """Submitted once, polled, and there is its text, with pages."""
    query = await submitted(
        handler, sandbox, sandbox.page_url("letter.jpg"), outputs=("text", "json"), pages="1"
    )
    done = await handler.query(query, Claim().query)
    assert done.verdict is Verdict.SUCCEEDED
    assert isinstance(done.result, OcrResult)
    assert "letter.jpg" in done.result.markdown
    (page,) = done.result.pages
    assert page.markdown == done.result.markdown == done.result.text
    assert len(page.blocks) == 2
    to_json(done.result)
    assert (sandbox.creating_requests("letter.jpg"), sandbox.created_jobs("letter.jpg")) == (1, 1)


async def test_a_document_that_is_not_there_fails(handler: DoclingOcr, sandbox: SandboxServer) -> None:
    """The task is a success, and its result says why there is none."""
    query = await submitted(handler, sandbox, sandbox.page_url("nothing.jpg"))
    failed = await handler.query(query, Claim().query)
    assert (failed.verdict, failed.error_code) == (Verdict.FAILED, "source_unavailable")
    assert "404" in (failed.error_message or "")


async def test_a_job_may_fail_hide_and_surprise(handler: DoclingOcr, sandbox: SandboxServer) -> None:
    """With the server's words; a result that is not ready is incomplete."""
    page = sandbox.page_url("letter.jpg")
    sandbox.faults.add(FailingJob(message="the page is too dark"))
    failed = await handler.query(await submitted(handler, sandbox, page), Claim().query)
    assert (failed.verdict, failed.error_code) == (Verdict.FAILED, "internal")
    assert failed.error_message == "the page is too dark"
    sandbox.faults.add(HiddenJob(seconds=3600))
    hidden = await handler.query(await submitted(handler, sandbox, page), Claim().query)
    assert hidden.verdict is Verdict.NOT_FOUND
    query = await submitted(handler, sandbox, page)
    sandbox.faults.add(StatusWord(word="aborted"))
    assert (await handler.query(query, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.jobs.delay = timedelta(hours=1)
    slow = await submitted(handler, sandbox, page)
    assert (await handler.query(slow, Claim().query)).verdict is Verdict.RUNNING
    sandbox.faults.add(StatusWord(word="success"))
    assert (await handler.query(slow, Claim().query)).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    ("fault", "error_type"),
    [
        (Answer(operation=Operation.SUBMIT, status=503, retry_after="1"), OutcomeUnknown),
        (Answer(operation=Operation.SUBMIT, status=429), SubmitDeferred),
        (Answer(operation=Operation.SUBMIT, status=422, code="body.sources"), SubmitRejected),
        (Answer(operation=Operation.SUBMIT, status=200, body="{}"), UnreadableAnswer),
    ],
)
async def test_answers_without_a_task_are_judged(
    handler: DoclingOcr, sandbox: SandboxServer, fault: Answer, error_type: type[HandlerError]
) -> None:
    """A server that is busy may have taken the task all the same."""
    sandbox.faults.add(fault)
    with pytest.raises(error_type):
        await handler.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), Claim().submit)
    assert sandbox.creating_requests("letter.jpg") == 1


@pytest.mark.parametrize("account", [DoclingAccount("wrong"), None])
async def test_a_wrong_key_defers(
    opened: Callable[[object], DoclingOcr], sandbox: SandboxServer, account: object
) -> None:
    """An operator can mend it, so no task fails of it."""
    handler = opened(account)
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), Claim().submit)


@pytest.mark.parametrize(
    ("options", "place"),
    [({"page_range": [3, 1]}, "page_range"), ({"image_export_mode": "x"}, None)],
)
async def test_options_reach_the_server(
    handler: DoclingOcr, sandbox: SandboxServer, options: dict[str, JSON], place: str | None
) -> None:
    """What it makes of them is its own affair; it says where a request is wrong."""
    request = OcrRequest(url=sandbox.page_url("letter.jpg"), options=options)
    if place is None:
        assert (await handler.submit(request, Claim().submit)).status is Status.SUBMITTED
        return
    with pytest.raises(SubmitRejected, match=f"body.options.{place}"):
        await handler.submit(request, Claim().submit)


SOURCE: JSON = {"kind": "http", "url": "https://files.example/a.pdf"}


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({}, "body.sources"),
        ({"sources": []}, "body.sources"),
        ({"sources": [SOURCE, SOURCE]}, "body.sources"),
        ({"sources": [{"kind": "file"}]}, "body.sources.0"),
        ({"sources": [{"kind": "http", "url": "ftp://x/y"}]}, "body.sources.0.http.url"),
        ({"sources": [SOURCE], "options": []}, "body.options"),
        ({"sources": [SOURCE], "options": {"to_formats": ["word"]}}, "body.options.to_formats.0"),
        ({"sources": [SOURCE], "options": {"page_range": [1]}}, "body.options.page_range"),
    ],
)
async def test_the_sandbox_refuses_what_the_server_refuses(
    handler: DoclingOcr, body: JSON, place: str
) -> None:
    """With the place in the request."""
    refused = await handler.ask(HttpRequest.post("/v1/convert/source/async", json=body), Claim().submit)
    found = handler.read_error(refused)
    assert found is not None
    assert (found.status, found.message.partition(": ")[0]) == (422, place)
