"""What is special about this provider, with samples of its answers."""

import json
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from coatcheck_handler_azure_di.handler import AnalyzedDocument, AnalyzedPage, AnalyzeRequest, AzureDiHandler

from coatcheck import InvalidParams, Status, Task
from coatcheck.testing import ManualClock, memory_app, run_to_end
from coatcheck_http import ApiKey, HttpSettings
from coatcheck_http.testing import Reply, ScriptedServer

REQUEST = AnalyzeRequest(url="https://files.example.com/invoice.pdf")
PATH = "/documentintelligence/documentModels/prebuilt-layout/analyzeResults/3b31320d?api-version=2024-11-30"
RUNNING = Reply.of({"status": "running"})
EMPTY = Reply.of({"status": "succeeded", "analyzeResult": {"content": "", "pages": []}})


def accepted(origin: str) -> Reply:
    """Return the answer to a submission, with the operation at `origin`."""
    return Reply.of(status=202, headers={"operation-location": f"{origin}{PATH}", "retry-after": "1"})


async def track(
    replies: list[Reply], *, request: AnalyzeRequest = REQUEST, **settings: Any
) -> tuple[Task, Any, ScriptedServer]:
    """Submit a request, get it accepted, and give these answers to what follows, until the task has ended."""
    async with ScriptedServer([]) as server:
        server.replies[:] = [accepted(server.url), *replies]
        return *await run(server, request, **settings), server


async def run(server: ScriptedServer, request: AnalyzeRequest, **settings: Any) -> tuple[Task, Any]:
    """Submit a request to a server; return the task once it has ended, and its document if there is one."""
    clock = ManualClock()
    handler = AzureDiHandler(ApiKey("the-key"), settings=HttpSettings(base_url=server.url, **settings))
    app = memory_app(handler, clock=clock)
    async with app:
        await app.manager.submit(request, tracking_timeout=timedelta(minutes=5))
        [task] = await run_to_end(app, clock)
        done = task.status is Status.SUCCEEDED
        return task, app.manager.read_result(task, AnalyzedDocument) if done else None


async def test_a_request_says_all_that_it_is_given() -> None:
    """Options are query parameters, lists are joined with commas, and the document is named in the body."""
    request = AnalyzeRequest(
        url="https://files.example.com/a.pdf",
        model="my model",
        pages="1-3,5",
        locale="de",
        features=("formulas", "queryFields"),
        query_fields=("Total", "Due"),
    )
    _, _, server = await track([EMPTY], request=request)
    [sent] = server.sent("POST")
    target = urlsplit(sent.target)
    assert target.path == "/documentintelligence/documentModels/my%20model:analyze"
    assert {name: value for name, [value] in parse_qs(target.query).items()} == {
        "api-version": "2024-11-30",
        "outputContentFormat": "markdown",
        "stringIndexType": "unicodeCodePoint",
        "pages": "1-3,5",
        "locale": "de",
        "features": "formulas,queryFields",
        "queryFields": "Total,Due",
    }
    assert json.loads(sent.body) == {"urlSource": "https://files.example.com/a.pdf"}


async def test_an_operation_is_asked_about_at_its_location_with_the_key() -> None:
    """The location is used as it was given, query and all; the key is in the provider's own header."""
    task, _, server = await track([RUNNING, EMPTY])
    assert task.status is Status.SUCCEEDED
    assert [sent.target for sent in server.sent("GET")] == [PATH, PATH]
    assert {sent.headers["ocp-apim-subscription-key"] for sent in server.requests} == {"the-key"}
    assert not any("authorization" in sent.headers for sent in server.requests)


async def test_a_location_elsewhere_gets_the_key_only_if_its_origin_is_trusted() -> None:
    """Not even a connection is made to another origin, until the settings trust it."""
    async with ScriptedServer([EMPTY]) as resource:
        async with ScriptedServer([accepted(resource.url)]) as gateway:
            task, _ = await run(gateway, REQUEST)
        assert (
            task.status is Status.TRACKING_TIMED_OUT
        )  # the operation exists, so it is no doubt and no failure
        assert not resource.requests
        async with ScriptedServer([accepted(resource.url)]) as gateway:
            task, _ = await run(gateway, REQUEST, trusted_origins=[resource.url])
        assert task.status is Status.SUCCEEDED
        assert len(gateway.requests) == len(resource.requests) == 1


@pytest.mark.parametrize("headers", [{}, {"operation-location": "https://files.example.com/"}])
async def test_an_acceptance_without_an_operation_is_doubt(headers: dict[str, str]) -> None:
    """202 without a location, or with one that has no id: nobody can tell which operation it is."""
    async with ScriptedServer([Reply.of(status=202, headers=headers)]) as server:
        task, _ = await run(server, REQUEST)
    assert task.status is Status.SUBMIT_UNKNOWN
    assert len(server.requests) == 1


async def test_pages_are_cut_out_of_the_content_by_code_points() -> None:
    """Spans are asked for in code points, so they are indexes of Python's strings."""
    content = "# 🧾 Invoice\n\n<!-- PageBreak -->\n\nTotal: 12 €"
    first, second = "# 🧾 Invoice\n", "\nTotal: 12 €"
    pages: list[Any] = [
        {"pageNumber": 2, "width": 8.5, "height": 11, "unit": "inch", "spans": [span(content, first)]},
        {"pageNumber": 4, "spans": [span(content, second)]},
    ]
    result = {"modelId": "prebuilt-layout", "contentFormat": "markdown", "content": content, "pages": pages}
    _, document, _ = await track([Reply.of({"status": "succeeded", "analyzeResult": result})])
    assert document == AnalyzedDocument(
        content=content,
        content_format="markdown",
        model="prebuilt-layout",
        pages=(
            AnalyzedPage(number=2, content=first, width=8.5, height=11.0, unit="inch"),
            AnalyzedPage(number=4, content=second),
        ),
    )


def span(content: str, part: str) -> dict[str, int]:
    """Return where `part` is in `content`, as the provider would."""
    return {"offset": content.index(part), "length": len(part)}


async def test_an_empty_document_is_a_result() -> None:
    """An empty content is what a blank page has. A missing one is no result yet, which the kit tries."""
    task, document, _ = await track([EMPTY])
    assert task.status is Status.SUCCEEDED
    assert document.content == ""


async def test_a_failed_operation_tells_the_inner_code() -> None:
    """The inner error says what was wrong; the outer one says that something was."""
    error: dict[str, Any] = {
        "code": "InvalidRequest",
        "message": "Invalid request.",
        "innererror": {"code": "InvalidContent", "message": "The file is corrupted."},
    }
    task, _, _ = await track([Reply.of({"status": "failed", "error": error})])
    assert task.status is Status.FAILED
    assert task.error is not None
    assert (task.error.code, task.error.provider_code) == ("provider_failed", "InvalidContent")
    assert "The file is corrupted." in task.error.message


async def test_the_key_of_another_region_is_deferred() -> None:
    """A wrong key or endpoint is for an operator to mend: the task waits."""
    denied = {
        "error": {"code": "401", "message": "Access denied: invalid subscription key or wrong endpoint."}
    }
    async with ScriptedServer([]) as server:
        server.replies[:] = [Reply.of(denied, status=401), accepted(server.url), EMPTY]
        task, _ = await run(server, REQUEST)
    assert task.status is Status.SUCCEEDED
    assert task.progress.submit_attempts == 2


@pytest.mark.parametrize(
    "request_",
    [
        AnalyzeRequest(url="invoice.pdf"),
        AnalyzeRequest(url=REQUEST.url, model=".."),
        AnalyzeRequest(url=REQUEST.url, features=("formulas,barcodes",)),
        AnalyzeRequest(url=REQUEST.url, query_fields=(" ",)),
    ],
)
def test_what_no_request_can_be_made_of_is_refused(request_: AnalyzeRequest) -> None:
    """What could not be fetched, or would be another request than it seems, is not even saved."""
    with pytest.raises(InvalidParams):
        AzureDiHandler(settings=HttpSettings(base_url="https://x.example")).validate(request_)
