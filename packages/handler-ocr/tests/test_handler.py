import pytest
from attrs import frozen

from coatcheck.errors import InvalidParams, QueryFailed
from coatcheck.handler import QueryContext, params_type_of
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import QueryParams, Status
from coatcheck_handler_ocr import (
    ApiKey,
    HttpSettings,
    OcrHandler,
    OcrRequest,
    OcrResult,
    OcrSources,
    OutputFormat,
)
from coatcheck_http import HttpRequest, HttpResponse, PreparedContext, StatusMap
from coatcheck_http.testing import Claim, Reply, ScriptedServer

URL = "https://files.example.com/report.pdf"


class HeaderOcr(OcrHandler):
    """A provider that answers a submit with a header alone, and a query with whatever it has."""

    key = "test:header"
    default_base_url = "https://ocr.example.com"
    supports = frozenset({"pages"})
    statuses = StatusMap(running="started", succeeded="x")

    def build_submit(self, params: OcrRequest, context: PreparedContext) -> HttpRequest:
        """Hand the URL on."""
        return HttpRequest.post("/analyze", json={"url": params.url})

    def create_query_params(self, response: HttpResponse, params: OcrRequest) -> QueryParams:
        """Take the id from the header."""
        return QueryParams(external_task_id=response.header("x-job") or "")

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Ask."""
        return HttpRequest.get("/job")

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Return a Markdown URL, or something that is no sources."""
        body = response.json_object()
        if "url" not in body:
            return QueryResult.succeeded("own", provider_status="x")
        url = body["url"]
        return OcrSources(markdown_url=str(url) if url else None)


def test_every_ocr_handler_takes_the_same_params() -> None:
    """So that a selector can choose among them."""
    assert params_type_of(HeaderOcr) is OcrRequest


async def test_an_answer_without_a_body_is_accepted() -> None:
    """The id may be in a header, and a status word is used if there is one."""
    replies = [
        Reply.of(b"", status=202, headers={"x-job": "7"}),
        Reply.of({"status": "Started"}, headers={"x-job": "8"}),
    ]
    async with ScriptedServer(replies) as server:
        handler = HeaderOcr(ApiKey("k"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        silent = await handler.submit(OcrRequest(url=URL), Claim().submit)
        started = await handler.submit(OcrRequest(url=URL), Claim().submit)
        await handler.close()
    assert (silent.status, silent.provider_status) == (Status.SUBMITTED, None)
    assert (started.status, started.provider_status) == (Status.RUNNING, "Started")


async def test_results_are_completed() -> None:
    """From a URL, or "incomplete" if there is none; what is no sources is left alone."""
    async with ScriptedServer([Reply.of(b"# T")]) as files:
        answers = [
            Reply.of({"status": "x", "url": f"{files.url}/r.md"}),
            Reply.of({"status": "x", "url": None}),
            Reply.of({"status": "x"}),
        ]
        async with ScriptedServer(answers) as server:
            settings = HttpSettings(base_url=server.url, allow_private=True)
            handler = HeaderOcr(ApiKey("k"), settings=settings)
            await handler.open()
            query = QueryParams(external_task_id="7")
            done = await handler.query(query, Claim().query)
            nothing = await handler.query(query, Claim().query)
            own = await handler.query(query, Claim().query)
            await handler.close()
    assert (done.result, done.provider_status) == (OcrResult(markdown="# T", text="# T"), "x")
    assert nothing.verdict is Verdict.INCOMPLETE
    assert own.result == "own"


@frozen(kw_only=True)
class Elsewhere(OcrSources):
    """A result that another request gets."""

    path: str


class TwoStepOcr(HeaderOcr):
    """A provider whose answer about a job that is done has no result in it."""

    key = "test:two-step"

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Return where the result is."""
        return Elsewhere(path="/result")

    async def fetch_sources(
        self, sources: OcrSources, context: QueryContext
    ) -> OcrSources | QueryResult | None:
        """Ask for it."""
        assert isinstance(sources, Elsewhere)
        answer = await self.ask(HttpRequest.get(sources.path), context)
        if answer.status == 404:
            return None
        if not answer.ok:
            raise self.unanswered(answer, context)
        text = str(answer.json_object()["text"])
        return QueryResult.failed("blank", "no text") if not text else OcrSources(markdown=text)


async def test_a_result_may_take_another_request() -> None:
    """What it brings means the same as if the query had brought it: text, a failure, nothing yet."""
    done = Reply.of({"status": "x"})
    results = [
        Reply.of({"text": "# T"}),
        Reply.of({"text": ""}),
        Reply.of({}, status=404),
        Reply.of({}, status=503),
    ]
    async with ScriptedServer([each for result in results for each in (done, result)]) as server:
        handler = TwoStepOcr(ApiKey("k"), settings=HttpSettings(base_url=server.url))
        await handler.open()
        query = QueryParams(external_task_id="7")
        read, failed, nothing = [await handler.query(query, Claim().query) for _ in results[:3]]
        with pytest.raises(QueryFailed, match="503"):
            await handler.query(query, Claim().query)
        await handler.close()
    assert (read.result, read.provider_status) == (OcrResult(markdown="# T", text="# T"), "x")
    assert (failed.verdict, failed.error_code, failed.provider_status) == (Verdict.FAILED, "blank", "x")
    assert (nothing.verdict, nothing.provider_status) == (Verdict.INCOMPLETE, "x")


@pytest.mark.parametrize(
    "request_",
    [
        OcrRequest(url=URL, tables=False),
        OcrRequest(url=URL, languages=("en",)),
        OcrRequest(url=URL, model="m"),
        OcrRequest(url=URL, outputs=(OutputFormat.MARKDOWN, OutputFormat.DOCX)),
    ],
)
def test_what_the_provider_lacks_is_refused(request_: OcrRequest) -> None:
    """Rather than read the document otherwise than asked; what it has passes."""
    handler = HeaderOcr()
    handler.validate(OcrRequest(url=URL, pages="1-2", outputs=(OutputFormat.TEXT,)))
    with pytest.raises(InvalidParams, match="test:header"):
        handler.validate(request_)
