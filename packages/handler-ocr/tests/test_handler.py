import pytest

from coatcheck.errors import InvalidParams
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
