import asyncio
import io
import json
import zipfile
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from attrs import evolve

from coatcheck.errors import (
    CallbackRejected,
    HandlerError,
    InvalidParams,
    QueryFailed,
    SubmitDeferred,
    SubmitRejected,
)
from coatcheck.handler import CallbackRequest
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_conformance import Callbacks, HandlerConformance, HandlerSpec, Means, Reply, Script
from coatcheck_handler_ocr import ApiKey, HttpSettings, OcrRequest, OcrResult
from coatcheck_handler_ocr.mineru import MinerUOcr, MinerUOcrSettings
from coatcheck_http import HttpResponse, OutcomeUnknown, PreparedContext, UnreadableAnswer, own_callback_url
from coatcheck_http.testing import Claim, ScriptedServer
from coatcheck_http.testing import Reply as Raw
from coatcheck_sandbox import FailingJob, NoResult, Operation, SandboxServer, StatusWord, describe
from coatcheck_sandbox.providers.mineru import MinerUProtocol

MIB = 1024 * 1024
TASK = QueryParams(external_task_id="m1", provider_params={"kind": "task"})
BATCH = QueryParams(external_task_id="b1", provider_params={"kind": "batch"})
ACCEPTED: JSON = {"code": 0, "msg": "ok", "trace_id": "t", "data": {"task_id": "m1"}}
ACCEPTED_BATCH: JSON = {"code": 0, "msg": "ok", "trace_id": "t", "data": {"batch_id": "b1"}}
DOCUMENT = OcrRequest(url="https://files.test/scan.pdf")
OUR_URL = "https://app.test/callbacks/mineru?tenant=a"


def packed(**files: str) -> bytes:
    """Return an archive."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "."), text)
    return content.getvalue()


ARCHIVE = packed(full__md="# From the archive", x_content_list__json="[]")


def job(state: str, **more: JSON) -> dict[str, JSON]:
    """Return what is told of a job."""
    return {"data_id": "task-1", "state": state, "err_msg": "", **more}


def status(word: str) -> JSON:
    """Return the answer about a task with this state."""
    return {
        "code": 0,
        "msg": "ok",
        "data": {"task_id": "m1", **job(word, full_zip_url="{server}/files/x.zip")},
    }


def batch_status(word: str) -> JSON:
    """Return the answer about a batch of one file with this state."""
    file = {"file_name": "scan.pdf", **job(word, full_zip_url="{server}/files/x.zip")}
    return {"code": 0, "msg": "ok", "data": {"batch_id": "b1", "extract_result": [file]}}


def answer(body: JSON, http_status: int = 200) -> HttpResponse:
    """Return an answer as it is read."""
    return HttpResponse(status=http_status, body=json.dumps(body).encode())


def context(task_id: str = "task-1", callback_url: str | None = None) -> PreparedContext:
    """Return the context of a submit call."""
    claim = evolve(Claim().submit, task_id=task_id, callback_url=callback_url)
    return PreparedContext.of(claim)


def called(secret: str, body: JSON, task_id: str = "task-1") -> CallbackRequest:
    """Return a callback to the address that was made with `secret`."""
    parts = urlsplit(own_callback_url(OUR_URL, task_id, secret))
    return CallbackRequest(
        method="POST",
        path=parts.path,
        headers={"content-type": "application/json"},
        query=dict(parse_qsl(parts.query)),
        body=json.dumps(body).encode(),
    )


# The kit.


def mineru_spec(_folder: Path | None = None, *, batch: bool = False) -> HandlerSpec:
    """Return the provider as its documentation describes it."""
    data: JSON = {"batch_id": "b1", "extract_result": []} if batch else {"task_id": "m1", "state": "done"}
    content: JSON = {"checksum": "0" * 64, "content": json.dumps(data)}
    empty: JSON = {"batch_id": "b1", "extract_result": [job("done", full_zip_url="")]}
    accounts = {
        "default": ApiKey("key-of-one", callback_secret="callback-secret-of-one"),
        "other": ApiKey("key-of-another", callback_secret="callback-secret-of-another"),
    }
    return HandlerSpec(
        "coatcheck_handler_ocr.mineru:MinerUOcr",
        key="ocr:mineru",
        params=lambda url: OcrRequest(url=f"{url}/files/scan.pdf"),
        settings=lambda url: MinerUOcrSettings(
            base_url=url,
            batch=batch,
            read_timeout=timedelta(seconds=1),
            max_answer_bytes=2 * MIB,
            allow_private=True,
        ),
        accounts=accounts,
        script=Script(
            job="b1" if batch else "m1",
            accepted=Reply.of(ACCEPTED_BATCH if batch else ACCEPTED),
            status=batch_status if batch else status,
            words={word: Means(state) for word, state in MinerUOcr.statuses.words.items()},
            done_without_result=Reply.of(
                {"code": 0, "data": empty if batch else {"task_id": "m1", "state": "done"}}
            ),
            rejected=Reply.of({"code": -500, "msg": "parameter error", "data": None}),
            rate_limited=Reply.of({"code": -60009, "msg": "the queue is full"}),
            not_found=Reply.of({"code": -60012, "msg": "task not found"}),
            error=lambda message: {"success": False, "msgCode": "A0500", "msg": message},
            served={"/files/x.zip": ARCHIVE},
            callbacks=Callbacks(
                authentic=called("callback-secret-of-one", content),
                forged=called("callback-secret-of-another", content),
            ),
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestMinerUOcr(HandlerConformance):
    """The handler of MinerU keeps every promise with single tasks."""

    require = (
        "account",
        "two accounts",
        "document fields",
        "nested fields",
        "answer without a result",
        "parse_callback",
    )

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider's single tasks."""
        return mineru_spec()


class TestMinerUOcrBatches(HandlerConformance):
    """It keeps them with batches, too."""

    require = TestMinerUOcr.require

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider's batches."""
        return mineru_spec(batch=True)


# On samples of answers, as documented.


def read(data: JSON, params: QueryParams = TASK) -> QueryResult:
    """Return what a query answered with `data` comes to."""
    return MinerUOcr().parse_query(answer({"code": 0, "msg": "ok", "data": data}), params, Claim().query)


@pytest.mark.parametrize(
    ("word", "verdict", "state"),
    [
        ("waiting-file", Verdict.RUNNING, Status.SUBMITTED),
        ("pending", Verdict.RUNNING, Status.SUBMITTED),
        ("uploading", Verdict.RUNNING, Status.RUNNING),
        ("running", Verdict.RUNNING, Status.RUNNING),
        ("converting", Verdict.RUNNING, Status.RUNNING),
        ("done", Verdict.SUCCEEDED, Status.RUNNING),
        ("failed", Verdict.FAILED, Status.RUNNING),
        ("archived", Verdict.UNLISTED, Status.RUNNING),
    ],
)
@pytest.mark.parametrize("shape", ["task", "object", "array"])
def test_every_word_is_mapped(shape: str, word: str, verdict: Verdict, state: Status) -> None:
    """Of tasks and of batches, whose result is an object or an array."""
    told = job(word, full_zip_url="https://x.test/x.zip")
    data: dict[str, JSON] = {
        "task": {"task_id": "m1", **told},
        "object": {"batch_id": "b1", "extract_result": told},
        "array": {"batch_id": "b1", "extract_result": [told]},
    }
    result = read(data[shape])
    assert (result.verdict, result.status, result.provider_status) == (verdict, state, word)


def test_a_failed_job_says_why() -> None:
    """With a code and a message, of a task or of the file of a batch."""
    told = job("failed", err_code=-30003, err_msg="too many pages")
    for data in (told, {"extract_result": told}, {"extract_result": [told]}):
        failed = read(data)
        assert (failed.error_code, failed.error_message) == ("-30003", "too many pages")
    assert read(job("failed")).error_message == "the job failed"


@pytest.mark.parametrize(
    ("progress", "part"),
    [
        ({"extracted_pages": 3, "total_pages": 12, "start_time": "2026-01-01 00:00:00"}, 0.25),
        ({"extracted_pages": 9, "total_pages": 3}, 1.0),
        ({"extracted_pages": 0, "total_pages": 0}, None),
        ({"extracted_pages": "3", "total_pages": 9}, None),
        ({"extracted_pages": 3}, None),
        (None, None),
    ],
)
def test_progress_is_told(progress: JSON, part: float | None) -> None:
    """As the part of the pages, if both numbers are there."""
    assert read(job("running", extract_progress=progress)).progress == part
    assert read({"extract_result": [job("running", extract_progress=progress)]}).progress == part


@pytest.mark.parametrize("data", [None, {}, {"extract_result": []}, {"state": None}])
def test_an_answer_without_a_state_is_unreadable(data: JSON) -> None:
    """It is neither running nor done."""
    with pytest.raises(UnreadableAnswer, match="state"):
        read(data)


@pytest.mark.parametrize(
    ("body", "http_status", "error"),
    [
        (ACCEPTED, 200, None),
        ({"data": {"task_id": "m1"}}, 200, None),
        ({"success": True, "code": 0, "data": {}}, 200, None),
        ({"code": -60012, "msg": "task not found"}, 200, ("-60012", "task not found")),
        ({"success": False, "msgCode": "A0202", "msg": "no"}, 200, ("A0202", "no")),
        ({"success": False, "msgCode": "A0211", "msg": "expired"}, 401, ("A0211", "expired")),
        ({"success": False}, 200, (None, None)),
    ],
)
def test_both_shapes_of_errors_are_read(
    body: JSON, http_status: int, error: tuple[str | None, str | None] | None
) -> None:
    """That of the service and that of the gateway before it, in any HTTP status."""
    found = MinerUOcr().read_error(answer(body, http_status))
    if error is None:
        assert found is None
    else:
        assert found is not None
        assert found.code == error[0]
        assert error[1] is None or found.message == error[1]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("A0202", SubmitDeferred),
        ("A0211", SubmitDeferred),
        (-500, SubmitRejected),
        (-60002, SubmitRejected),
        (-60005, SubmitRejected),
        (-60006, SubmitRejected),
        (-60008, SubmitRejected),
        (-60009, SubmitDeferred),
        (-60018, SubmitDeferred),
        (-10001, OutcomeUnknown),
        (-60007, OutcomeUnknown),
    ],
)
async def test_codes_are_judged(code: JSON, error: type[HandlerError]) -> None:
    """A service that is in error proves nothing; a full queue, a bad token or a used-up day defer."""
    async with ScriptedServer([Raw.of({"code": code, "msg": "m"})]) as server:
        handler = MinerUOcr(ApiKey("k"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(error) as caught:
            await handler.submit(DOCUMENT, Claim().submit)
        await handler.close()
    assert caught.value.code == str(code)


# What is sent.


def test_a_task_is_submitted_by_its_url() -> None:
    """Options first, so that they replace nothing that is set here; the task's id comes along for people."""
    request = evolve(
        DOCUMENT,
        model="vlm",
        pages="1-10,15",
        languages=("en",),
        tables=True,
        formulas=False,
        outputs=("markdown", "docx", "latex"),
        options={
            "is_ocr": True,
            "cache_tolerance": 60,
            "model_version": "x",
            "url": "x",
            "files": [],
            "data_id": "x",
            "callback": "https://evil.test",
            "seed": "x",
        },
    )
    sent = MinerUOcr(ApiKey("k")).build_submit(request, context(callback_url=OUR_URL))
    assert (sent.method, sent.url) == ("POST", "/api/v4/extract/task")
    assert sent.json == {
        "is_ocr": True,
        "cache_tolerance": 60,
        "model_version": "vlm",
        "page_ranges": "1-10,15",
        "language": "en",
        "enable_table": True,
        "enable_formula": False,
        "extra_formats": ["docx", "latex"],
        "url": "https://files.test/scan.pdf",
        "data_id": "task-1",
    }


def test_a_batch_has_one_file() -> None:
    """What belongs to a file is said of it, the rest once."""
    handler = MinerUOcr(ApiKey("k"), settings=MinerUOcrSettings(batch=True))
    request = evolve(DOCUMENT, model="pipeline", pages="2", options={"is_ocr": True, "no_cache": True})
    sent = handler.build_submit(request, context())
    assert (sent.method, sent.url) == ("POST", "/api/v4/extract/task/batch")
    file = {"url": "https://files.test/scan.pdf", "data_id": "task-1", "page_ranges": "2", "is_ocr": True}
    assert sent.json == {"no_cache": True, "model_version": "pipeline", "files": [file]}


@pytest.mark.parametrize("task_id", ["a b", "ä", "x" * 129])
def test_an_id_that_mineru_cannot_take_is_left_out(task_id: str) -> None:
    """The task is submitted all the same."""
    assert MinerUOcr(ApiKey("k")).build_submit(DOCUMENT, context(task_id)).json == {"url": DOCUMENT.url}


def test_several_languages_are_refused() -> None:
    """MinerU takes one."""
    request = evolve(DOCUMENT, languages=("ch", "en"))
    for refuse in (MinerUOcr().validate, lambda params: MinerUOcr().build_submit(params, context())):
        with pytest.raises(InvalidParams, match="one language"):
            refuse(request)


def test_the_kind_of_a_job_is_stored() -> None:
    """So that its query is right whatever the settings are by then."""
    single, batch = MinerUOcr(), MinerUOcr(settings=MinerUOcrSettings(batch=True))
    assert single.create_query_params(answer(ACCEPTED), DOCUMENT) == TASK
    assert batch.create_query_params(answer(ACCEPTED_BATCH), DOCUMENT) == BATCH
    for handler in (single, batch):
        assert handler.build_query(TASK, Claim().query).url == "/api/v4/extract/task/m1"
        assert handler.build_query(BATCH, Claim().query).url == "/api/v4/extract-results/batch/b1"
        with pytest.raises(InvalidParams, match="kind"):
            handler.build_query(TASK.evolve(kind="x"), Claim().query)
    with pytest.raises(UnreadableAnswer, match=r"data\.batch_id"):
        batch.create_query_params(answer(ACCEPTED), DOCUMENT)


# Callbacks.


def test_a_callback_is_asked_for_where_it_can_be_checked() -> None:
    """With an address of our own and a seed that MinerU takes; without a secret none is asked for."""
    handler = MinerUOcr(ApiKey("k", callback_secret="the-secret"))
    sent = handler.build_submit(DOCUMENT, context(callback_url=OUR_URL)).json
    assert isinstance(sent, dict)
    assert sent["callback"] == own_callback_url(OUR_URL, "task-1", "the-secret")
    assert len(str(sent["seed"])) == 32
    assert str(sent["seed"]).isalnum()
    assert "the-secret" not in json.dumps(sent)
    again = handler.build_submit(DOCUMENT, context(callback_url=OUR_URL)).json
    assert sent == again


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"checksum": "c", "content": json.dumps({"task_id": "m1", "state": "done"})}, "m1"),
        ({"checksum": "c", "content": json.dumps({"batch_id": "b1", "extract_result": []})}, "b1"),
        ({"content": {"task_id": "m1"}}, "m1"),
        ({"content": json.dumps({"code": 0, "data": {"task_id": "m1"}})}, "m1"),
        ({"code": 0, "data": {"task_id": "m1"}}, "m1"),
        ({"task_id": "m1", "batch_id": "b1"}, "m1"),
        ({"content": "no JSON", "task_id": "m1"}, None),
        ({"content": "[]"}, None),
        ({"content": "\ud800"}, None),
        ({"content": 7}, None),
        ({}, None),
    ],
)
async def test_a_callback_names_its_job(body: JSON, found: str | None) -> None:
    """Wherever its id is; without one it is rejected."""
    handler = MinerUOcr(ApiKey("k", callback_secret="the-secret"))
    request = called("the-secret", body)
    if found is None:
        with pytest.raises(CallbackRejected):
            await handler.parse_callback(request, None)
    else:
        assert tuple((await handler.parse_callback(request, None)).external_task_ids) == (found,)
        with pytest.raises(CallbackRejected, match="callback_secret"):
            await MinerUOcr(ApiKey("k")).parse_callback(request, None)
        with pytest.raises(CallbackRejected, match="token"):
            await handler.parse_callback(called("another", body), None)


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks MinerU's protocol, without an OCR engine."""
    with SandboxServer(protocols=[MinerUProtocol()], recognizer=describe) as server:
        yield server


def make(sandbox: SandboxServer, *, batch: bool = False, key: str = "sandbox-key") -> MinerUOcr:
    """Return a handler of the sandbox, closed."""
    made = MinerUOcrSettings(base_url=f"{sandbox.url}/mineru", allow_private=True, batch=batch)
    return MinerUOcr(ApiKey(key, callback_secret="the-secret"), settings=made)


@pytest.fixture(params=[False, True], ids=["task", "batch"])
async def handler(sandbox: SandboxServer, request: pytest.FixtureRequest) -> AsyncIterator[MinerUOcr]:
    """A handler that is open."""
    made = make(sandbox, batch=request.param)
    await made.open()
    yield made
    await made.close()


async def submitted(handler: MinerUOcr, sandbox: SandboxServer) -> QueryParams:
    """Submit the letter, asking for a callback, and return what its queries need."""
    claim = evolve(Claim().submit, callback_url=OUR_URL)
    accepted = await handler.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), claim)
    assert accepted.status is Status.SUBMITTED
    assert accepted.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 10)
    return accepted.query_params


async def test_a_document_is_read(handler: MinerUOcr, sandbox: SandboxServer) -> None:
    """Submitted once, queried, and there is its text, from an archive that is fetched without credentials."""
    query = await submitted(handler, sandbox)
    done = await handler.query(query, Claim().query)
    assert isinstance(done.result, OcrResult)
    assert "letter.jpg" in done.result.markdown
    assert [each.type for each in done.result.assets] == ["archive"]
    assert (sandbox.creating_requests("letter.jpg"), sandbox.created_jobs("letter.jpg")) == (1, 1)
    (fetched,) = sandbox.log.requests(Operation.RESULT)
    assert not fetched.has_authorization
    assert sandbox.jobs.find("task-1") is not None


async def test_jobs_may_fail_or_be_odd(handler: MinerUOcr, sandbox: SandboxServer) -> None:
    """A failed job says why; one without a result, with an unknown word, or that is not there is no success."""
    sandbox.faults.add(FailingJob(code="-30003", message="too many pages"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.verdict, failed.error_code) == (Verdict.FAILED, "-30003")
    query = await submitted(handler, sandbox)
    sandbox.faults.add(NoResult())
    assert (await handler.query(query, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="archived"))
    assert (await handler.query(query, Claim().query)).verdict is Verdict.UNLISTED
    nobody = QueryParams(external_task_id="nobody", provider_params=query.provider_params)
    assert (await handler.query(nobody, Claim().query)).verdict is Verdict.NOT_FOUND
    other = query.evolve(kind="task" if query.provider_params["kind"] == "batch" else "batch")
    assert (await handler.query(other, Claim().query)).verdict is Verdict.NOT_FOUND


@pytest.mark.parametrize("batch", [False, True], ids=["task", "batch"])
async def test_a_job_that_runs_tells_its_progress(*, batch: bool) -> None:
    """Not while it waits."""
    now = [0.0]
    protocols = [MinerUProtocol()]
    delay = timedelta(seconds=100)
    with SandboxServer(protocols=protocols, recognizer=describe, delay=delay, clock=lambda: now[0]) as slow:
        made = make(slow, batch=batch)
        await made.open()
        query = await submitted(made, slow)
        waiting = await made.query(query, Claim().query)
        now[0] = 50.0
        running = await made.query(query, Claim().query)
        await made.close()
    assert (waiting.status, waiting.progress) == (Status.SUBMITTED, None)
    assert (running.status, running.progress) == (Status.RUNNING, 0.0)


async def test_an_archive_that_is_gone_fails_the_query() -> None:
    """Which is asked again: the next answer has a new link."""
    async with ScriptedServer([Raw.of(b"", status=403)]) as files:
        told = job("done", full_zip_url=f"{files.url}/x.zip")
        done = Raw.of({"code": 0, "data": {**told, "extract_result": told}})
        async with ScriptedServer([done]) as server:
            settings = HttpSettings(base_url=server.url, allow_private=True)
            made = MinerUOcr(ApiKey("k"), settings=settings)
            await made.open()
            with pytest.raises(QueryFailed, match="403"):
                await made.query(TASK, Claim().query)
            await made.close()


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """The gateway's error is understood: an operator can mend it, so no task fails of it."""
    made = make(sandbox, key="wrong")
    await made.open()
    with pytest.raises(SubmitDeferred, match="A0202"):
        await made.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), Claim().submit)
    await made.close()


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/api/v4/extract/task", {}, -500),
        ("/api/v4/extract/task", {"url": "http://127.0.0.1:9/a.pdf", "callback": "https://x.test"}, -500),
        ("/api/v4/extract/task/batch", {"files": [{"url": "a"}, {"url": "b"}]}, -500),
        ("/api/v4/extract/task/batch", [], -500),
    ],
)
def test_the_sandbox_refuses_what_mineru_refuses(
    sandbox: SandboxServer, path: str, body: JSON, code: int
) -> None:
    """In HTTP 200, with a code."""
    headers = {"authorization": "Bearer sandbox-key"}
    refused = httpx.post(f"{sandbox.url}/mineru{path}", json=body, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (200, code)


def test_the_sandbox_has_no_archive_of_a_job_that_is_not_done(sandbox: SandboxServer) -> None:
    """Nor of one that is not there."""
    sandbox.jobs.delay = timedelta(hours=1)
    made = httpx.post(
        f"{sandbox.url}/mineru/api/v4/extract/task",
        json={"url": sandbox.page_url("letter.jpg")},
        headers={"authorization": "Bearer sandbox-key"},
    ).json()["data"]["task_id"]
    for job_id in (made, "nobody"):
        found = httpx.get(f"{sandbox.url}/mineru/results/{job_id}/result.zip")
        assert found.json()["code"] == -60012
