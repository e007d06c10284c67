import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from attrs import evolve

from coatcheck.errors import HandlerError, QueryFailed, SubmitDeferred, SubmitRejected
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_conformance import HandlerConformance, HandlerSpec, Means, Reply, Script
from coatcheck_handler_ocr import ApiKey, HttpSettings, OcrRequest, OcrResult
from coatcheck_handler_ocr.paddleocr import PaddleOcrApi, PaddleOcrApiSettings
from coatcheck_handler_ocr.result import OcrBlock, OcrPage
from coatcheck_http import HttpResponse, OutcomeUnknown, PreparedContext, UnreadableAnswer
from coatcheck_http.testing import Claim, ScriptedServer
from coatcheck_http.testing import Reply as Raw
from coatcheck_sandbox import FailingJob, NoResult, Operation, SandboxServer, StatusWord, describe
from coatcheck_sandbox.providers.paddleocr import PaddleOcrProtocol
from coatcheck_sandbox.reading import Block
from coatcheck_sandbox.recognize import Recognition, RecognizedPage

MIB = 1024 * 1024
JOB = QueryParams(external_task_id="j1")
ACCEPTED: JSON = {"code": 0, "msg": "Success", "data": {"jobId": "j1"}}
DOCUMENT = OcrRequest(url="https://files.test/scan.pdf")
PARSED: JSON = {
    "result": {
        "layoutParsingResults": [
            {"markdown": {"text": "# From the line", "images": {}}, "outputImages": {}},
            {
                "markdown": {"text": "second"},
                "prunedResult": {
                    "width": 100,
                    "height": 200.5,
                    "parsing_res_list": [
                        {
                            "block_label": "title",
                            "block_content": "second",
                            "block_bbox": [1, 2, 3, 4],
                        },
                        {"block_label": None, "block_content": 7, "block_bbox": [1, 2, True, 4]},
                        "odd",
                    ],
                },
            },
        ]
    }
}
TEXTS: JSON = {
    "result": {
        "ocrResults": [
            {
                "prunedResult": {
                    "rec_texts": ["first line", "second line", None],
                    "rec_boxes": [[1, 2, 3, 4], "odd"],
                },
                "ocrImage": "https://x.test/1.jpg",
            },
            {"prunedResult": None},
        ]
    }
}


def status(word: str, **data: JSON) -> JSON:
    """Return the answer about a job with this state; its pages are behind a link."""
    told: dict[str, JSON] = {
        "jobId": "j1",
        "state": word,
        "extractProgress": {"totalPages": 9, "extractedPages": 9, "startTime": "s", "endTime": "e"},
        "resultUrl": {"jsonUrl": "{server}/files/result.jsonl"},
        "errorMsg": None,
    }
    return {"code": 0, "msg": "Success", "data": {**told, **data}}


def answer(body: JSON, http_status: int = 200) -> HttpResponse:
    """Return an answer as it is read."""
    return HttpResponse(status=http_status, body=json.dumps(body).encode())


def context() -> PreparedContext:
    """Return the context of a submit call."""
    return PreparedContext.of(Claim().submit)


def lines(*documents: JSON) -> bytes:
    """Return a file with a document on each line, and one that is blank."""
    return b"\n\n".join(json.dumps(each).encode() for each in documents)


# The kit.


def settings(url: str) -> PaddleOcrApiSettings:
    """Return settings with short times and small limits."""
    return PaddleOcrApiSettings(
        base_url=url, read_timeout=timedelta(seconds=1), max_answer_bytes=2 * MIB, allow_private=True
    )


def paddleocr_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its documentation describes it."""
    return HandlerSpec(
        "coatcheck_handler_ocr.paddleocr:PaddleOcrApi",
        key="ocr:paddleocr",
        params=lambda url: OcrRequest(url=f"{url}/files/scan.pdf"),
        settings=settings,
        accounts={"default": ApiKey("token-of-one"), "other": ApiKey("token-of-another")},
        script=Script(
            job="j1",
            accepted=Reply.of(ACCEPTED),
            status=status,
            words={word: Means(state) for word, state in PaddleOcrApi.statuses.words.items()},
            done_without_result=Reply.of(status("done", resultUrl=None)),
            rejected=Reply.of({"code": 400, "msg": "no such model"}, status=400),
            rate_limited=Reply.of({"code": 429, "errorMsg": "too many jobs"}, status=429),
            not_found=Reply.of({"code": 404, "msg": "no such job"}, status=404),
            error=lambda message: {"code": 1, "msg": message},
            served={"/files/result.jsonl": lines(PARSED)},
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestPaddleOcrApi(HandlerConformance):
    """The handler of PaddleOCR keeps every promise."""

    require = ("account", "two accounts", "document fields", "nested fields", "answer without a result")

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider as its documentation describes it."""
        return paddleocr_spec()


# On samples of answers, as documented.


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    return PaddleOcrApi().parse_query(answer(body), JOB, Claim().query)


@pytest.mark.parametrize(
    ("word", "verdict", "state"),
    [
        ("pending", Verdict.RUNNING, Status.SUBMITTED),
        ("running", Verdict.RUNNING, Status.RUNNING),
        ("done", Verdict.SUCCEEDED, Status.RUNNING),
        ("failed", Verdict.FAILED, Status.RUNNING),
        ("archived", Verdict.UNLISTED, Status.RUNNING),
    ],
)
def test_every_word_is_mapped(word: str, verdict: Verdict, state: Status) -> None:
    """A word that is not documented is unlisted."""
    result = read(status(word))
    assert (result.verdict, result.status, result.provider_status) == (verdict, state, word)


def test_an_accepted_job_has_its_id() -> None:
    """It is submitted: the answer has no state."""
    accepted = PaddleOcrApi().parse_submit(answer(ACCEPTED), DOCUMENT, context())
    assert (accepted.query_params, accepted.status) == (JOB, Status.SUBMITTED)
    with pytest.raises(UnreadableAnswer, match=r"data\.jobId"):
        PaddleOcrApi().parse_submit(answer({"code": 0, "data": None}), DOCUMENT, context())


def test_a_failed_job_says_why() -> None:
    """In `errorMsg`; the envelope's code 0 is no code of it."""
    failed = read(status("failed", errorMsg="the file is damaged"))
    assert (failed.error_code, failed.error_message) == (None, "the file is damaged")
    assert read(status("failed")).error_message == "the job failed"


@pytest.mark.parametrize(
    ("progress", "part"),
    [
        ({"totalPages": 12, "extractedPages": 3}, 0.25),
        ({"totalPages": 3, "extractedPages": 9}, 1.0),
        ({"totalPages": 0, "extractedPages": 0}, None),
        ({"totalPages": "9", "extractedPages": 3}, None),
        ({"totalPages": 9}, None),
        (None, None),
    ],
)
def test_progress_is_told(progress: JSON, part: float | None) -> None:
    """As the part of the pages, if both numbers are there."""
    assert read(status("running", extractProgress=progress)).progress == part


@pytest.mark.parametrize(
    ("body", "http_status", "error"),
    [
        (ACCEPTED, 200, None),
        ({"data": {"jobId": "j1"}}, 200, None),
        ({"code": 11, "msg": "m"}, 200, ("11", "m")),
        ({"errorMsg": "m"}, 429, (None, "m")),
        ({"message": "m"}, 503, (None, "m")),
    ],
)
def test_errors_are_told_from_answers(
    body: JSON, http_status: int, error: tuple[str | None, str] | None
) -> None:
    """By the HTTP status, or by a code that is not 0; the message has three names."""
    found = PaddleOcrApi().read_error(answer(body, http_status))
    assert (found and (found.code, found.message)) == error


@pytest.mark.parametrize(
    ("http_status", "error"),
    [
        (400, SubmitRejected),
        (401, SubmitDeferred),
        (403, SubmitDeferred),
        (429, SubmitDeferred),
        (503, OutcomeUnknown),
        (504, OutcomeUnknown),
    ],
)
async def test_documented_statuses_are_judged(http_status: int, error: type[HandlerError]) -> None:
    """A server that is down proves nothing; a bad token and a rate defer."""
    async with ScriptedServer([Raw.of({"msg": "m"}, status=http_status)]) as server:
        handler = PaddleOcrApi(ApiKey("k"), settings=settings(server.url))
        await handler.open()
        with pytest.raises(error):
            await handler.submit(DOCUMENT, Claim().submit)
        await handler.close()


# What is sent.


def test_a_job_is_submitted_by_its_url() -> None:
    """Options first, so that they replace neither the document nor the model nor the pages."""
    request = evolve(
        DOCUMENT,
        pages="1-10,15",
        model="PP-OCRv6",
        options={
            "optionalPayload": {"useDocUnwarping": True},
            "batchId": "b1",
            "fileUrl": "x",
            "file": "x",
            "model": "x",
            "pageRanges": "x",
        },
    )
    sent = PaddleOcrApi().build_submit(request, context())
    assert (sent.method, sent.url) == ("POST", "/api/v2/ocr/jobs")
    assert sent.json == {
        "optionalPayload": {"useDocUnwarping": True},
        "batchId": "b1",
        "fileUrl": "https://files.test/scan.pdf",
        "model": "PP-OCRv6",
        "pageRanges": "1-10,15",
    }
    assert PaddleOcrApi().build_query(JOB, Claim().query).url == "/api/v2/ocr/jobs/j1"


def test_the_model_is_chosen_by_the_request_or_the_settings() -> None:
    """And none is left out, since the API wants one."""
    own = PaddleOcrApi(settings=PaddleOcrApiSettings(model="PP-StructureV3"))
    assert own.build_submit(DOCUMENT, context()).json == {"fileUrl": DOCUMENT.url, "model": "PP-StructureV3"}
    other = PaddleOcrApi(settings=HttpSettings())
    assert other.build_submit(DOCUMENT, context()).json == {
        "fileUrl": DOCUMENT.url,
        "model": "PaddleOCR-VL-1.6",
    }


# The result.


def test_parsed_pages_are_read() -> None:
    """With their blocks and sizes where they are told; what makes no sense is passed over."""
    assert PaddleOcrApi().read_page(PARSED, 3) == (
        OcrPage(index=3, markdown="# From the line"),
        OcrPage(
            index=4,
            markdown="second",
            width=100.0,
            height=200.5,
            blocks=(
                OcrBlock(kind="title", text="second", box=(1.0, 2.0, 3.0, 4.0)),
                OcrBlock(),
                OcrBlock(),
            ),
        ),
    )


def test_pages_of_text_are_read() -> None:
    """Line by line, each a block with its box where it is told."""
    assert PaddleOcrApi().read_page(TEXTS, 0) == (
        OcrPage(
            index=0,
            markdown="first line\nsecond line\n",
            blocks=(
                OcrBlock(kind="line", text="first line", box=(1.0, 2.0, 3.0, 4.0)),
                OcrBlock(kind="line", text="second line"),
                OcrBlock(kind="line"),
            ),
        ),
        OcrPage(index=1),
    )


async def fetched(file: Raw) -> QueryResult:
    """Return what a job that is done comes to, whose link is answered so."""
    async with ScriptedServer([file]) as files:
        done = status("done", resultUrl={"jsonUrl": f"{files.url}/result.jsonl?signature=s"})
        async with ScriptedServer([Raw.of(done)]) as server:
            handler = PaddleOcrApi(ApiKey("the-token"), settings=settings(server.url))
            await handler.open()
            try:
                return await handler.query(JOB, Claim().query)
            finally:
                await handler.close()
                assert "authorization" in server.requests[0].headers
                assert not any("authorization" in each.headers for each in files.requests)


async def test_all_lines_are_joined() -> None:
    """In their order, whatever their shape, from a link that is asked without credentials."""
    result = (await fetched(Raw.of(lines(PARSED, TEXTS)))).result
    assert isinstance(result, OcrResult)
    assert result.markdown.startswith("# From the line\n\nsecond\n\nfirst line\nsecond line")
    assert [page.index for page in result.pages] == [0, 1, 2, 3]
    assert [each.type for each in result.assets] == ["jsonl"]
    assert result.usage == {"totalPages": 9}


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (Raw.of(lines(PARSED, {"result": {"tables": []}})), "layoutParsingResults"),
        (Raw.of(b"{"), "no JSON"),
        (Raw.of(b"", status=403), "403"),
    ],
)
async def test_a_result_that_cannot_be_read_fails_the_query(file: Raw, why: str) -> None:
    """Which is asked again: no pages are lost in silence."""
    with pytest.raises(QueryFailed, match=why):
        await fetched(file)


async def test_a_job_without_a_link_is_incomplete() -> None:
    """Done, and nothing to be had: the worker asks again a few times."""
    for body in (status("done", resultUrl=None), status("done", resultUrl={"jsonUrl": ""})):
        assert read(body).verdict is Verdict.INCOMPLETE
    bare = await PaddleOcrApi().fetch_result(QueryResult.running(), Claim().query)
    assert bare.verdict is Verdict.RUNNING


def test_pages_need_not_be_counted() -> None:
    """Then there is no usage."""
    result = PaddleOcrApi().read_result(answer(status("done", extractProgress=None)), JOB, Claim().query)
    assert not isinstance(result, QueryResult)
    assert result is not None
    assert result.usage == {}


# From end to end, against the sandbox.


def boxed(content: bytes, name: str) -> Recognition:
    """Return two pages with the places of their texts."""
    words = describe(content, name).blocks
    block = Block(text=words[0], left=1.0, top=2.0, right=11.0, bottom=22.0)
    page = RecognizedPage(blocks=(block,), width=100.0, height=200.0)
    return Recognition(pages=(page, RecognizedPage(blocks=(Block(text=words[1]),))))


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks PaddleOCR's protocol, without an OCR engine."""
    with SandboxServer(protocols=[PaddleOcrProtocol()], recognizer=boxed) as server:
        yield server


def make(sandbox: SandboxServer, key: str = "sandbox-key") -> PaddleOcrApi:
    """Return a handler of the sandbox, closed."""
    made = PaddleOcrApiSettings(base_url=f"{sandbox.url}/paddleocr", allow_private=True)
    return PaddleOcrApi(ApiKey(key), settings=made)


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[PaddleOcrApi]:
    """A handler that is open."""
    made = make(sandbox)
    await made.open()
    yield made
    await made.close()


async def submitted(handler: PaddleOcrApi, sandbox: SandboxServer, model: str | None = None) -> QueryParams:
    """Submit the letter, and return what its queries need."""
    request = OcrRequest(url=sandbox.page_url("letter.jpg"), model=model)
    accepted = await handler.submit(request, Claim().submit)
    assert accepted.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 10)
    return accepted.query_params


@pytest.mark.parametrize(
    ("model", "kind", "size"), [(None, "text", (100.0, 200.0)), ("PP-OCRv6", "line", (None, None))]
)
async def test_a_document_is_read(
    handler: PaddleOcrApi,
    sandbox: SandboxServer,
    model: str | None,
    kind: str,
    size: tuple[float | None, ...],
) -> None:
    """Submitted once, queried, and there are its pages, whichever shape the model gives them in."""
    done = await handler.query(await submitted(handler, sandbox, model), Claim().query)
    assert isinstance(done.result, OcrResult)
    assert "letter.jpg" in done.result.markdown
    first, second = done.result.pages
    assert (first.width, first.height) == size
    (block,) = first.blocks
    assert (block.kind, block.box) == (kind, (1.0, 2.0, 11.0, 22.0))
    assert second.index == 1
    assert done.result.usage == {"totalPages": 2}
    assert (sandbox.creating_requests("letter.jpg"), sandbox.created_jobs("letter.jpg")) == (1, 1)
    (result,) = sandbox.log.requests(Operation.RESULT)
    assert not result.has_authorization


async def test_jobs_may_fail_or_be_odd(handler: PaddleOcrApi, sandbox: SandboxServer) -> None:
    """A failed job says why; one without a result, with an unknown word, or that is not there is no success."""
    sandbox.faults.add(FailingJob(code="x", message="the page is too dark"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.verdict, failed.error_message) == (Verdict.FAILED, "the page is too dark")
    query = await submitted(handler, sandbox)
    sandbox.faults.add(NoResult())
    assert (await handler.query(query, Claim().query)).verdict is Verdict.INCOMPLETE
    sandbox.faults.add(StatusWord(word="archived"))
    assert (await handler.query(query, Claim().query)).verdict is Verdict.UNLISTED
    nobody = QueryParams(external_task_id="nobody")
    assert (await handler.query(nobody, Claim().query)).verdict is Verdict.NOT_FOUND


async def test_what_the_provider_does_not_take_is_rejected(
    handler: PaddleOcrApi, sandbox: SandboxServer
) -> None:
    """With the provider's words."""
    request = OcrRequest(url=sandbox.page_url("letter.jpg"), options={"optionalPayload": "x"})
    with pytest.raises(SubmitRejected, match="optionalPayload"):
        await handler.submit(request, Claim().submit)


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    made = make(sandbox, "wrong")
    await made.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await made.submit(OcrRequest(url=sandbox.page_url("letter.jpg")), Claim().submit)
    await made.close()


def test_the_sandbox_wants_a_model(sandbox: SandboxServer) -> None:
    """And has no result of a job that is not done."""
    sandbox.jobs.delay = timedelta(hours=1)
    jobs, headers = f"{sandbox.url}/paddleocr/api/v2/ocr/jobs", {"authorization": "Bearer sandbox-key"}
    body = {"fileUrl": sandbox.page_url("letter.jpg")}
    assert httpx.post(jobs, json=body, headers=headers).status_code == 400
    made = httpx.post(jobs, json={**body, "model": "PP-OCRv6"}, headers=headers).json()["data"]["jobId"]
    assert httpx.get(f"{sandbox.url}/paddleocr/results/{made}/result.jsonl").status_code == 404
