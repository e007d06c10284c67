import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import timedelta
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from attrs import evolve

from coatcheck.errors import ConfigurationError, HandlerError, InvalidParams, QueryFailed, SubmitDeferred
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import JSON, CancelOutcome, QueryParams, Status
from coatcheck_conformance import Cancelling, HandlerConformance, HandlerSpec, Means, Script, validate
from coatcheck_conformance import Reply as KitReply
from coatcheck_handler_ocr.documentai import DocumentAiOcr, DocumentAiOcrSettings
from coatcheck_handler_ocr.request import OcrRequest, OutputFormat
from coatcheck_handler_ocr.result import OcrBlock, OcrResult
from coatcheck_http import (
    ApiKey,
    GoogleCalls,
    GoogleServiceAccount,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    PreparedContext,
    UnreadableAnswer,
)
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import FailingJob, NoResult, SandboxServer, StatusWord, describe
from coatcheck_sandbox.providers.documentai import DocumentAiProtocol
from coatcheck_sandbox.recognize import Recognition

# what the extra brings, whose types need not be known
serialization: Any = import_module("cryptography.hazmat.primitives.serialization")
rsa: Any = import_module("cryptography.hazmat.primitives.asymmetric.rsa")
jwt: Any = import_module("google.auth.jwt")

MIB = 1024 * 1024
NAME = "projects/p1/locations/us/operations/op1"
FOLDER = "gs://out/ocr/task-1/"
JOB = QueryParams(external_task_id=NAME, provider_params={"output": FOLDER})
REQUEST = OcrRequest(url="gs://scans/2026/scan.pdf")
SHARD: JSON = {
    "text": "Hello\n",
    "pages": [{"layout": {"textAnchor": {"textSegments": [{"endIndex": "6"}]}}}],
}


@cache
def private_key() -> Any:
    """Return a key for the tests."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def service_account(token_uri: str, email: str = "worker@p1.example.com") -> GoogleServiceAccount:
    """Return a service account whose tokens come from `token_uri`."""
    key = private_key().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    document = {
        "type": "service_account",
        "client_email": email,
        "private_key_id": "k1",
        "private_key": key.decode(),
        "token_uri": token_uri,
    }
    return GoogleServiceAccount(json.dumps(document))


def settings(url: str | None = None, **changes: Any) -> DocumentAiOcrSettings:
    """Return settings of a handler that talks to `url` alone."""
    known: dict[str, Any] = {
        "project": "p1",
        "processor": "ocr1",
        "output_prefix": "gs://out/ocr/",
        "read_timeout": timedelta(seconds=1),
    }
    own = {} if url is None else {"base_url": url, "storage_url": url}
    return DocumentAiOcrSettings(**{**known, **own, **changes})


def ended(**more: JSON) -> dict[str, JSON]:
    """Return an operation that is done."""
    return {"name": NAME, "done": True, "metadata": {"state": "SUCCEEDED"}, **more}


# The kit.


def status(word: str) -> JSON:
    """Return an operation in this state."""
    body: dict[str, JSON] = {"name": NAME, "metadata": {"state": word}}
    more: Mapping[str, Mapping[str, JSON]] = {
        "SUCCEEDED": {"done": True, "response": {}},
        "FAILED": {"done": True, "error": {"code": 3, "message": "unreadable"}},
        "CANCELLED": {"done": True, "error": {"code": 1, "message": "cancelled"}},
    }
    return {**body, **more.get(word, {})}


def error(message: str, status: int = 400, word: str = "INVALID_ARGUMENT") -> JSON:
    """Return the body of an error."""
    return {"error": {"code": status, "message": message, "status": word}}


def documentai_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its service definition describes it."""
    return HandlerSpec(
        "coatcheck_handler_ocr.documentai:DocumentAiOcr",
        key="ocr:documentai",
        params=lambda _url: REQUEST,
        settings=lambda url: settings(url, max_answer_bytes=2 * MIB),
        accounts={"default": ApiKey("google-token-of-one"), "other": ApiKey("google-token-of-another")},
        creating=lambda method, path: method == "POST" and path.endswith(":batchProcess"),
        script=Script(
            job=NAME,
            accepted=KitReply.of({"name": NAME, "metadata": {"state": "WAITING"}}),
            status=status,
            words={word.upper(): Means(state) for word, state in DocumentAiOcr.statuses.words.items()},
            rejected=KitReply.of(error("no such type"), status=400),
            rate_limited=KitReply.of(error("slow down", 429, "RESOURCE_EXHAUSTED"), status=429),
            not_found=KitReply.of(error("no such operation", 404, "NOT_FOUND"), status=404),
            error=lambda message: {"error": {"code": 0, "message": message}},
            done_without_result=KitReply.of(ended()),
            served={
                "/storage/v1/b/out/o": {"items": [{"name": "ocr/t/0/scan-0.json"}]},
                "/storage/v1/b/out/o/ocr%2Ft%2F0%2Fscan-0.json": SHARD,
            },
            cancel=Cancelling(
                confirmed=KitReply.of({}),
                refused=KitReply.of(error("it has ended", 400, "FAILED_PRECONDITION"), status=400),
            ),
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestDocumentAiOcr(HandlerConformance):
    """The handler of Google Document AI keeps every promise."""

    require = (
        "account", "two accounts", "document fields", "nested fields", "answer without a result", "cancel",
    )  # fmt: skip

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider as its service definition describes it."""
        return documentai_spec()


def test_service_accounts_keep_the_promises_about_secrets() -> None:
    """With tokens that are minted, nothing that opens a door is stored, told or logged, and one request creates."""
    spec = documentai_spec()
    served: dict[str, JSON | bytes | KitReply] = {
        **spec.script.served,
        "/token": {"access_token": "minted-token", "expires_in": 3599},
    }
    accounts = {name: service_account("/token", f"{name}@p1.example.com") for name in ("default", "other")}
    minting = evolve(spec, accounts=accounts, script=evolve(spec.script, served=served))
    rules = [
        *(f"HANDLER-SECRET-{number}" for number in range(1, 8)),
        *(f"HANDLER-ACCOUNT-{number}" for number in range(1, 5)),
        *(f"HANDLER-WIRE-{number}" for number in (1, 6)),
        "HANDLER-HELD-1",
    ]
    report = validate(HandlerConformance, minting, only=rules)
    assert not report.failed, report


# What is sent.


def built(request: OcrRequest, **changes: Any) -> HttpRequest:
    """Return the creating request."""
    known = Claim().submit
    context = PreparedContext(
        task_id=known.task_id,
        account_id=None,
        idempotency_key=known.idempotency_key,
        now=known.now,
        created_at=known.created_at,
        deadline_at=known.deadline_at,
        ensure_held=known.ensure_held,
    )
    return DocumentAiOcr(settings=settings(**changes)).build_submit(request, context)


def test_a_document_is_processed_as_a_batch_of_one() -> None:
    """Its result goes to a folder of the task's; options go along, beneath what the handler sets."""
    options: dict[str, JSON] = {
        "processOptions": {"ocrConfig": {"enableNativePdfParsing": True}},
        "skipHumanReview": True,
        "inputDocuments": "mine",
        "documentOutputConfig": {
            "gcsOutputConfig": {
                "fieldMask": "text",
                "shardingConfig": {"pagesPerShard": 5},
                "gcsUri": "gs://x/",
            }
        },
    }
    sent = built(OcrRequest(url="gs://scans/2026/scan.TIFF", options=options))
    assert (sent.method, sent.url) == ("POST", "/v1/projects/p1/locations/us/processors/ocr1:batchProcess")
    assert sent.json == {
        "processOptions": {"ocrConfig": {"enableNativePdfParsing": True}},
        "skipHumanReview": True,
        "inputDocuments": {
            "gcsDocuments": {"documents": [{"gcsUri": "gs://scans/2026/scan.TIFF", "mimeType": "image/tiff"}]}
        },
        "documentOutputConfig": {
            "gcsOutputConfig": {"fieldMask": "text", "shardingConfig": {"pagesPerShard": 5}, "gcsUri": FOLDER}
        },
    }


@pytest.mark.parametrize(
    ("request_", "changes", "path"),
    [
        (REQUEST, {"location": "eu"}, "projects/p1/locations/eu/processors/ocr1:batchProcess"),
        (
            REQUEST,
            {"processor_version": "v 1"},
            "projects/p1/locations/us/processors/ocr1/processorVersions/v%201:batchProcess",
        ),
        (
            OcrRequest(url=REQUEST.url, model="v2"),
            {"processor_version": "v1", "project": "example.com:p1"},
            "projects/example.com%3Ap1/locations/us/processors/ocr1/processorVersions/v2:batchProcess",
        ),
    ],
)
def test_the_processor_is_that_of_the_settings(
    request_: OcrRequest, changes: dict[str, Any], path: str
) -> None:
    """In a version of the request's or the settings', if one is named."""
    assert built(request_, **changes).url == f"/v1/{path}"


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (OcrRequest(url="https://storage.googleapis.com/scans/scan.pdf"), "gs URL"),
        (OcrRequest(url="s3://scans/scan.pdf"), "gs URL"),
        (OcrRequest(url="gs://scans/scan"), "give file_name with one of"),
        (OcrRequest(url="gs://scans/scan.pdf", file_name="scan.exe"), "'scan.exe'"),
        (OcrRequest(url="gs://scans/scan.pdf", pages="1"), "`pages`"),
        (OcrRequest(url="gs://scans/scan.pdf", outputs=(OutputFormat.HTML,)), "html"),
    ],
)
def test_requests_that_cannot_be_met_are_refused(request_: OcrRequest, why: str) -> None:
    """At the time of submission, by whoever submits."""
    with pytest.raises(InvalidParams, match=why):
        DocumentAiOcr(settings=settings()).validate(request_)


def test_a_name_tells_the_type() -> None:
    """That of the request, or of the object."""
    sent = built(OcrRequest(url="gs://scans/scan", file_name="scan.Jpg")).json
    assert '"mimeType": "image/jpeg"' in json.dumps(sent)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"project": ""}, "project"),
        ({"processor": "a/b"}, "processor"),
        ({"location": "us/.."}, "location"),
        ({"output_prefix": ""}, "output_prefix"),
        ({"output_prefix": "s3://out/"}, "output_prefix"),
        ({"output_prefix": "gs://out"}, "output_prefix"),
        ({"max_shards": 0}, "max_shards"),
    ],
)
def test_settings_that_mean_nothing_are_refused(changes: dict[str, Any], why: str) -> None:
    """When they are made."""
    with pytest.raises(ConfigurationError, match=why):
        settings(**changes)


def test_where_the_provider_is() -> None:
    """By the location, unless the settings say otherwise; Cloud Storage is trusted, and no other place."""
    handler = DocumentAiOcr(settings=settings(location="eu"))
    assert handler.base_url == "https://eu-documentai.googleapis.com"
    assert handler.trusts("https://storage.googleapis.com/storage/v1/b/out/o")
    assert not handler.trusts("https://us-documentai.googleapis.com/v1/x")
    for wrong in (None, HttpSettings()):
        with pytest.raises(ConfigurationError, match="DocumentAiOcrSettings"):
            DocumentAiOcr(settings=wrong)
    with pytest.raises(ConfigurationError):
        DocumentAiOcr(settings=settings(storage_url="http://storage.example.com"))


def test_a_query_asks_for_the_operation() -> None:
    """Whose name is a path, and can lead nowhere else."""
    handler = DocumentAiOcr(settings=settings())
    assert handler.build_query(JOB, Claim().query).url == f"/v1/{NAME}"
    cancel = handler.build_cancel(JOB, Claim().cancel)
    assert (cancel.method, cancel.url, cancel.json) == ("POST", f"/v1/{NAME}:cancel", {})
    for wrong in ("projects/../x", "projects//x", "/x"):
        with pytest.raises(InvalidParams):
            handler.build_query(QueryParams(external_task_id=wrong), Claim().query)


# Answers.


def answer(body: JSON, status: int = 200) -> HttpResponse:
    """Return an answer of the provider."""
    return HttpResponse(status=status, body=Reply.of(body).raw.partition(b"\r\n\r\n")[2])


def read(body: JSON) -> QueryResult:
    """Return what a query answered with `body` comes to, before files are read."""
    return DocumentAiOcr(settings=settings()).parse_query(answer(body), JOB, Claim().query)


@pytest.mark.parametrize(
    ("body", "verdict", "state", "word"),
    [
        ({}, Verdict.RUNNING, Status.RUNNING, None),
        ({"done": False}, Verdict.RUNNING, Status.RUNNING, None),
        ({"metadata": {"state": "WAITING"}}, Verdict.RUNNING, Status.SUBMITTED, "WAITING"),
        ({"metadata": {"state": "RUNNING"}}, Verdict.RUNNING, Status.RUNNING, "RUNNING"),
        ({"metadata": {"state": "CANCELLING"}}, Verdict.RUNNING, Status.RUNNING, "CANCELLING"),
        ({"metadata": {"state": "SUCCEEDED"}}, Verdict.RUNNING, Status.RUNNING, "SUCCEEDED"),
        ({"metadata": {"state": "PAUSED"}}, Verdict.UNLISTED, Status.RUNNING, "PAUSED"),
        ({"done": True, "response": {}}, Verdict.SUCCEEDED, Status.RUNNING, "done"),
        (
            {"done": True, "response": {}, "metadata": {"state": "SUCCEEDED"}},
            Verdict.SUCCEEDED,
            Status.RUNNING,
            "SUCCEEDED",
        ),
        ({"done": True}, Verdict.INCOMPLETE, Status.RUNNING, "done"),
        ({"done": True, "error": {"code": 1}}, Verdict.CANCELED, Status.RUNNING, "done"),
        ({"done": True, "metadata": {"state": "CANCELLED"}}, Verdict.CANCELED, Status.RUNNING, "CANCELLED"),
        ({"done": True, "metadata": {"state": "FAILED"}}, Verdict.FAILED, Status.RUNNING, "FAILED"),
        ({"done": True, "error": {"message": "m"}}, Verdict.FAILED, Status.RUNNING, "done"),
    ],
)
def test_done_says_whether_a_job_has_ended(
    body: dict[str, JSON], verdict: Verdict, state: Status, word: str | None
) -> None:
    """And the state tells more; a word that is not documented is unlisted."""
    found = read({"name": NAME, **body})
    assert (found.verdict, found.status, found.provider_status) == (verdict, state, word)


def test_an_answer_that_is_no_operation_is_unreadable() -> None:
    """It says nothing of the job."""
    with pytest.raises(UnreadableAnswer, match="name"):
        read({"done": True, "response": {}})


def process(code: int | None, destination: str = "", message: str = "") -> JSON:
    """Return the status of one document."""
    told: dict[str, JSON] = {"message": message} if message else {}
    return {
        "inputGcsSource": "gs://scans/scan.pdf",
        "status": told if code is None else {"code": code, **told},
        "outputGcsDestination": destination,
    }


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ({"error": {"code": 3, "message": "bad"}}, "INVALID_ARGUMENT", "bad"),
        ({"error": {"code": 99, "message": "bad"}}, "99", "bad"),
        ({"metadata": {"state": "FAILED", "stateMessage": "why"}}, None, "why"),
        ({"metadata": {"state": "FAILED"}}, None, "the job failed"),
        (
            {"response": {}, "metadata": {"individualProcessStatuses": [process(5, message="gone")]}},
            "NOT_FOUND",
            "gone",
        ),
    ],
)
def test_a_failed_job_says_why(body: dict[str, JSON], code: str | None, message: str) -> None:
    """A job whose document failed has failed, though it is done without an error."""
    found = read({"name": NAME, "done": True, **body})
    assert (found.verdict, found.error_code, found.error_message) == (Verdict.FAILED, code, message)


@pytest.mark.parametrize(
    ("body", "error", "code", "message"),
    [
        (error("m"), 400, "INVALID_ARGUMENT", "m"),
        ({"error": "invalid_grant", "error_description": "d"}, 400, "invalid_grant", "d"),
        ({"error": {"code": 403, "message": "m"}}, 403, None, "m"),
    ],
)
def test_errors_are_read(body: JSON, error: int, code: str | None, message: str) -> None:
    """Of the API, of the token endpoint, and of Cloud Storage."""
    found = DocumentAiOcr(settings=settings()).read_error(answer(body, error))
    assert found is not None
    assert (found.code, found.message) == (code, message)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, CancelOutcome.CONFIRMED),
        (400, CancelOutcome.REFUSED),
        (404, CancelOutcome.REFUSED),
        (501, CancelOutcome.REFUSED),
        (500, CancelOutcome.UNKNOWN),
        (403, CancelOutcome.UNKNOWN),
    ],
)
def test_a_cancel_has_an_outcome(status: int, outcome: CancelOutcome) -> None:
    """A method that there is not is a refusal."""
    handler = DocumentAiOcr(settings=settings())
    assert handler.parse_cancel(answer({}, status), JOB, Claim().cancel) is outcome


# Results in files.


async def fetched(
    operation: JSON, *replies: JSON | Reply, **changes: Any
) -> tuple[QueryResult, ScriptedServer]:
    """Query a job, with these answers of Cloud Storage."""
    made = [each if isinstance(each, Reply) else Reply.of(each) for each in (operation, *replies)]
    async with ScriptedServer(made) as server:
        handler = DocumentAiOcr(ApiKey("token"), settings=settings(server.url, **changes))
        await handler.open()
        try:
            return await handler.query(JOB, Claim().query), server
        finally:
            await handler.close()


def listing(*names: str, **more: JSON) -> JSON:
    """Return a listing."""
    return {"items": [{"name": name} for name in names], **more}


def anchor(begin: int, end: int) -> JSON:
    """Return what points into a text."""
    start: dict[str, JSON] = {"startIndex": str(begin)} if begin else {}
    return {"textSegments": [{**start, "endIndex": str(end)}]}


async def test_files_are_listed_and_read_in_order() -> None:
    """By their own numbers, with the account's token; what is no JSON file is passed over."""
    destination = f"{FOLDER}7/0"
    operation = ended(response={}, metadata={"individualProcessStatuses": [process(None, destination)]})
    shards: list[JSON] = [
        {
            "text": "two",
            "shardInfo": {"shardIndex": "1"},
            "pages": [{"layout": {"textAnchor": anchor(0, 3)}}],
        },
        {
            "text": "one ",
            "pages": [{"layout": {"textAnchor": anchor(0, 4)}}],
            "error": {"message": "blurred"},
        },
    ]
    found, server = await fetched(
        operation,
        listing("ocr/task-1/7/0/a-1.json", "ocr/task-1/7/0/log.txt", nextPageToken="t"),
        listing("ocr/task-1/7/0/a-0.json"),
        *shards,
    )
    assert isinstance(found.result, OcrResult)
    assert (found.result.markdown, found.result.text) == ("one\n\ntwo", "one two")
    assert [each.index for each in found.result.pages] == [0, 1]
    names = [f"{destination}/a-0.json", f"{destination}/a-1.json"]
    assert [(each.type, each.url) for each in found.result.assets] == [("json", name) for name in names]
    assert found.result.warnings == (f"{names[0]}: blurred",)
    assert [each.target for each in server.requests] == [
        f"/v1/{NAME}",
        "/storage/v1/b/out/o?prefix=ocr%2Ftask-1%2F7%2F0",
        "/storage/v1/b/out/o?prefix=ocr%2Ftask-1%2F7%2F0&pageToken=t",
        "/storage/v1/b/out/o/ocr%2Ftask-1%2F7%2F0%2Fa-1.json?alt=media",
        "/storage/v1/b/out/o/ocr%2Ftask-1%2F7%2F0%2Fa-0.json?alt=media",
    ]
    assert {each.headers["authorization"] for each in server.requests} == {"Bearer token"}
    to_json(found.result)


@pytest.mark.parametrize(
    "metadata", [{}, {"individualProcessStatuses": [process(None), process(None, "gs://elsewhere/secret/")]}]
)
async def test_the_tasks_folder_is_read_where_the_provider_names_no_other(metadata: JSON) -> None:
    """A place outside of it, whoever names it, is not read."""
    operation = ended(response={}, metadata=metadata)
    shard: JSON = {"text": "a\nb", "pages": []}
    names = ["ocr/task-1/a-10.json", "ocr/task-1/a-9.json"]
    found, server = await fetched(operation, listing(*names), {"text": "ten"}, {"text": "nine "}, shard)
    assert isinstance(found.result, OcrResult)
    assert (found.result.markdown, found.result.pages) == ("nine ten", ())
    assert server.requests[1].target == "/storage/v1/b/out/o?prefix=ocr%2Ftask-1%2F"
    assert not any("elsewhere" in each.target for each in server.requests)


async def test_a_document_that_failed_is_a_warning_beside_one_that_did_not() -> None:
    """Partial success is success."""
    metadata: JSON = {"individualProcessStatuses": [process(13, message="oops"), process(None, f"{FOLDER}1")]}
    found, _ = await fetched(ended(response={}, metadata=metadata), listing("ocr/task-1/1.json"), SHARD)
    assert isinstance(found.result, OcrResult)
    assert found.result.markdown == "Hello"
    assert found.result.warnings == ("gs://scans/scan.pdf failed: INTERNAL oops",)


async def test_a_result_that_is_complete_is_left_alone() -> None:
    """Nothing is asked for it."""
    done = QueryResult.succeeded(OcrResult(markdown="here"))
    assert await DocumentAiOcr(settings=settings()).fetch_result(done, Claim().query) is done


@pytest.mark.parametrize("empty", [{}, {"items": []}, listing("ocr/task-1/log.txt")])
async def test_done_without_files_is_incomplete(empty: JSON) -> None:
    """Which the worker asks again a few times, and then fails by name."""
    found, _ = await fetched(ended(response={}), empty)
    assert found.verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    ("changes", "markdown"),
    [({"max_shards": 2}, "Hello\n\nHello"), ({"max_download_bytes": 5}, "Hello")],
)
async def test_a_result_that_is_too_large_is_cut(changes: dict[str, Any], markdown: str) -> None:
    """With a warning that says so."""
    names = [f"ocr/task-1/a-{index}.json" for index in range(3)]
    found, server = await fetched(ended(response={}), listing(*names), SHARD, **changes)
    assert isinstance(found.result, OcrResult)
    assert found.result.markdown == markdown
    assert "raise the settings max_shards and max_download_bytes" in found.result.warnings[0]
    assert len(server.requests) == 2 + markdown.count("Hello")


async def test_a_listing_without_an_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same warning."""
    monkeypatch.setattr("coatcheck_handler_ocr.documentai_shards._MOST_LISTINGS", 2)
    page = listing("ocr/task-1/a.json", nextPageToken="t")
    found, server = await fetched(ended(response={}), page, page, SHARD)
    assert isinstance(found.result, OcrResult)
    assert "the result goes on" in found.result.warnings[0]
    assert len(server.requests) == 5


@pytest.mark.parametrize(
    ("reply", "code", "rate_limited"),
    [
        (Reply.of({"error": {"code": 403, "message": "no"}}, status=403), "auth", False),
        (Reply.of({"error": {"code": 404, "message": "no"}}, status=404), "not_found_or_expired", False),
        (Reply.of({"error": {"code": 429, "message": "no"}}, status=429), "rate_limited", True),
        (Reply.of(b"", status=503), "provider_unavailable", False),
    ],
)
async def test_files_that_cannot_be_had_fail_the_query(
    reply: Reply, code: str, *, rate_limited: bool
) -> None:
    """And not the job, which is done: the next query tries again."""
    with pytest.raises(QueryFailed, match="the job is done") as caught:
        await fetched(ended(response={}), reply)
    assert (caught.value.code, caught.value.rate_limited) == (code, rate_limited)


@pytest.mark.parametrize(
    ("page", "markdown", "blocks"),
    [
        (
            {
                "dimension": {"width": 200, "height": 100},
                "layout": {
                    "textAnchor": {"textSegments": [{"endIndex": "5"}, {"startIndex": 6, "endIndex": 8}]}
                },
                "paragraphs": [
                    {
                        "layout": {
                            "textAnchor": anchor(0, 5),
                            "boundingPoly": {
                                "normalizedVertices": [{}, {"x": 0.5}, {"x": 0.5, "y": 0.25}, {"y": 0.25}]
                            },
                        }
                    }
                ],
                "lines": [{}],
            },
            "Titleis",
            (OcrBlock(kind="paragraph", text="Title", box=(0.0, 0.0, 100.0, 25.0)),),
        ),
        (
            {
                "blocks": [
                    {
                        "layout": {
                            "textAnchor": anchor(6, 99),
                            "boundingPoly": {"vertices": [{"x": 1, "y": 2}, {"x": 3, "y": 4}, 7]},
                        }
                    }
                ]
            },
            "is here",
            (OcrBlock(kind="block", text="is here", box=(1.0, 2.0, 3.0, 4.0)),),
        ),
        (
            {"lines": [{"layout": {"textAnchor": {"textSegments": [{"endIndex": True}]}}}, {"layout": None}]},
            "",
            (OcrBlock(kind="line"), OcrBlock(kind="line")),
        ),
        ({"layout": {"textAnchor": "x"}}, "", ()),
    ],
)
async def test_pages_are_made_of_what_points_into_the_text(
    page: JSON, markdown: str, blocks: tuple[OcrBlock, ...]
) -> None:
    """Boxes in the unit of the page, of paragraphs, or else blocks, or else lines."""
    shard: JSON = {"text": "Title is here", "pages": [page]}
    found, _ = await fetched(ended(response={}), listing("ocr/task-1/a.json"), shard)
    assert isinstance(found.result, OcrResult)
    assert (found.result.pages[0].markdown, found.result.pages[0].blocks) == (markdown, blocks)
    assert found.result.text == "Title is here"


@pytest.mark.parametrize("shard", [{"documentLayout": {}}, {"text": None, "pages": None}])
async def test_a_file_without_text_is_a_result_without_text(shard: JSON) -> None:
    """With a warning."""
    found, _ = await fetched(ended(response={}), listing("ocr/task-1/a.json"), shard)
    assert isinstance(found.result, OcrResult)
    assert (found.result.markdown, found.result.warnings) == ("", ("the provider found no text",))


async def test_a_file_that_is_no_document_fails_the_query() -> None:
    """It may be half-written."""
    with pytest.raises(QueryFailed):
        await fetched(ended(response={}), listing("ocr/task-1/a.json"), Reply.of(b"{"))


# Tokens.


async def asked(
    replies: list[Reply], account: GoogleServiceAccount | None = None, times: int = 1
) -> tuple[list[QueryResult | HandlerError], ScriptedServer]:
    """Query with a service account, some times at once, and return the answers or errors."""
    async with ScriptedServer(replies) as server:
        made = account or service_account(f"{server.url}/token")
        handler = DocumentAiOcr(made, settings=settings(server.url))
        await handler.open()
        try:
            calls = (handler.query(JOB, Claim().query) for _ in range(times))
            found = await asyncio.gather(*calls, return_exceptions=True)
        finally:
            await handler.close()
    return [each for each in found if isinstance(each, (QueryResult, HandlerError))], server


TOKEN = Reply.of({"access_token": "minted-token", "expires_in": 3599, "token_type": "Bearer"})
GOING_ON = Reply.of({"name": NAME})


async def test_a_token_is_minted_once_of_a_signed_assertion() -> None:
    """For all who wait for it; the key goes nowhere, and the signature is that of the key."""
    _, server = await asked([TOKEN, GOING_ON], times=3)
    first, *others = server.requests
    assert (first.method, first.target) == ("POST", "/token")
    assert "authorization" not in first.headers
    assert {each.headers["authorization"] for each in others} == {"Bearer minted-token"}
    assert len(others) == 3
    form = {name: values[0] for name, values in parse_qs(first.body.decode()).items()}
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    public = (
        private_key()
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    claims = jwt.decode(form["assertion"], certs=public, audience="https://oauth2.googleapis.com/token")
    assert claims["iss"] == "worker@p1.example.com"
    assert claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"
    assert claims["exp"] - claims["iat"] == 3600
    assert jwt.decode_header(form["assertion"])["kid"] == "k1"


@pytest.mark.parametrize(
    "reply",
    [
        Reply.of({"error": "invalid_grant", "error_description": "no such account"}, status=400),
        Reply.of({"error": "invalid_grant"}, status=503),
        Reply.of({"token_type": "Bearer"}),
        Reply.of(b"<html>"),
    ],
)
async def test_without_a_token_nothing_is_asked(reply: Reply) -> None:
    """The query failed, and a submission waits."""
    found, server = await asked([reply])
    assert isinstance(found[0], QueryFailed)
    assert [each.target for each in server.requests] == ["/token"]
    async with ScriptedServer([reply]) as other:
        handler = DocumentAiOcr(service_account(f"{other.url}/token"), settings=settings(other.url))
        await handler.open()
        claim = Claim()
        with pytest.raises(HandlerError):
            await handler.submit(REQUEST, claim.submit)
        await handler.close()
        assert claim.asked == 0
        assert [each.target for each in other.requests] == ["/token"]


async def test_a_token_that_is_refused_is_minted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless it is new: then something else is wrong, and minting would go on for ever."""
    refused = Reply.of(error("expired", 401, "UNAUTHENTICATED"), status=401)
    for fresh, targets in ((0.0, ["/token", "q", "/token", "q"]), (60.0, ["/token", "q", "q"])):
        monkeypatch.setattr(GoogleCalls, "token_fresh", timedelta(seconds=fresh))
        async with ScriptedServer([TOKEN, refused, TOKEN if fresh == 0 else GOING_ON, GOING_ON]) as server:
            handler = DocumentAiOcr(service_account(f"{server.url}/token"), settings=settings(server.url))
            await handler.open()
            with pytest.raises(QueryFailed):
                await handler.query(JOB, Claim().query)
            assert (await handler.query(JOB, Claim().query)).verdict is Verdict.RUNNING
            await handler.close()
        assert [each.target if each.target == "/token" else "q" for each in server.requests] == targets


async def test_a_token_that_cloud_storage_refuses_is_minted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the API had refused it."""
    monkeypatch.setattr(GoogleCalls, "token_fresh", timedelta())
    done, no = Reply.of(ended(response={})), Reply.of(error("expired", 401, "UNAUTHENTICATED"), status=401)
    async with ScriptedServer([TOKEN, done, no, TOKEN, GOING_ON]) as server:
        handler = DocumentAiOcr(service_account(f"{server.url}/token"), settings=settings(server.url))
        await handler.open()
        with pytest.raises(QueryFailed):
            await handler.query(JOB, Claim().query)
        await handler.query(JOB, Claim().query)
        await handler.close()
    assert [each.target for each in server.requests].count("/token") == 2


async def test_a_minted_token_is_in_no_error() -> None:
    """Not even if the provider says it aloud."""
    aloud = Reply.of(error("your token minted-token is not good"), status=400)
    (found,), _ = await asked([TOKEN, aloud])
    assert isinstance(found, QueryFailed)
    assert "minted-token" not in str(found)


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("no json at all", "no JSON object"),
        ("[]", "no JSON object"),
        ('{"client_email": "a@b", "private_key": 7}', "no private_key, token_uri"),
        (
            '{"client_email": "a@b", "private_key": "secret-stuff", "token_uri": "https://x.example.com/t"}',
            "private_key",
        ),
    ],
)
async def test_a_key_that_is_none_is_told(key: str, why: str) -> None:
    """Without a word of what it is."""
    handler = DocumentAiOcr(GoogleServiceAccount(key), settings=settings())
    with pytest.raises(ConfigurationError, match=why) as caught:
        await handler.authenticate(HttpRequest.get("https://x.example.com/"), Claim().query)
    assert "secret-stuff" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_an_account_of_another_kind_is_told() -> None:
    """With those that there are."""
    handler = DocumentAiOcr(object(), settings=settings())
    with pytest.raises(ConfigurationError, match="GoogleServiceAccount or an ApiKey"):
        await handler.authenticate(HttpRequest.get("https://x.example.com/"), Claim().query)


async def test_a_token_endpoint_in_the_clear_is_not_asked() -> None:
    """The assertion is worth a token."""
    found, server = await asked([GOING_ON], service_account("http://tokens.example.com/token"))
    assert isinstance(found[0], QueryFailed)
    assert found[0].code == "untrusted_url"
    assert not server.requests


async def test_a_key_may_be_in_a_file(tmp_path: Path) -> None:
    """Read when it is needed."""
    path = tmp_path / "key.json"
    account = GoogleServiceAccount.from_file(path)
    async with ScriptedServer([TOKEN, GOING_ON]) as server:
        path.write_text(service_account(f"{server.url}/token").key_json.reveal())
        handler = DocumentAiOcr(account, settings=settings(server.url))
        await handler.open()
        assert (await handler.query(JOB, Claim().query)).verdict is Verdict.RUNNING
        await handler.close()


async def test_without_google_auth_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task waits, and the message says what to do."""
    monkeypatch.setitem(sys.modules, "google.auth.jwt", None)
    handler = DocumentAiOcr(service_account("https://x.example.com/token"), settings=settings())
    with pytest.raises(ConfigurationError, match=r"pip install 'coatcheck-http\[google\]'"):
        await handler.authenticate(HttpRequest.get("https://x.example.com/"), Claim().query)


def test_the_module_needs_no_google_auth() -> None:
    """Processes that only submit tasks, and workers with a ready token, import nothing of it."""
    code = "import sys, coatcheck_handler_ocr.documentai; sys.exit('google.auth' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks the protocol of Document AI, without an OCR engine."""
    with SandboxServer(protocols=[DocumentAiProtocol()], recognizer=describe) as server:
        yield server


def made_for(sandbox: SandboxServer, account: object) -> DocumentAiOcr:
    """Return a handler of the sandbox."""
    return DocumentAiOcr(account, settings=settings(f"{sandbox.url}/documentai"))


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[DocumentAiOcr]:
    """A handler that is open, with a service account."""
    made = made_for(sandbox, service_account(f"{sandbox.url}/documentai/token"))
    await made.open()
    yield made
    await made.close()


async def submitted(
    handler: DocumentAiOcr, sandbox: SandboxServer, url: str = "gs://pages/letter.jpg"
) -> QueryParams:
    """Submit the letter, and return what its queries need."""
    accepted = await handler.submit(OcrRequest(url=url), Claim().submit)
    assert (accepted.status, accepted.provider_status) == (Status.SUBMITTED, "WAITING")
    assert accepted.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return accepted.query_params


async def test_a_document_is_read(handler: DocumentAiOcr, sandbox: SandboxServer) -> None:
    """With a token that was minted for it: submitted once, queried, its files listed and read."""
    query = await submitted(handler, sandbox)
    assert query.provider_params == {"output": FOLDER}
    done = await handler.query(query, Claim().query)
    assert isinstance(done.result, OcrResult)
    assert "letter.jpg" in done.result.markdown
    assert len(done.result.pages[0].blocks) == 2
    assert done.result.assets[0].url.startswith(FOLDER)
    to_json(done.result)
    assert (sandbox.creating_requests("letter.jpg"), sandbox.created_jobs("letter.jpg")) == (1, 1)


async def test_pages_are_read_from_several_files() -> None:
    """Listed in parts, and put in order."""

    def pages(content: bytes, name: str) -> Recognition:
        del content, name
        return Recognition(pages=tuple(Recognition.of(f"page {index}").pages[0] for index in range(12)))

    protocol = DocumentAiProtocol(objects_per_listing=5)
    with SandboxServer(protocols=[protocol], recognizer=pages) as sandbox:
        handler = made_for(sandbox, ApiKey("sandbox-key"))
        await handler.open()
        query = await submitted(handler, sandbox)
        done = await handler.query(query, Claim().query)
        await handler.close()
    assert isinstance(done.result, OcrResult)
    assert [each.markdown for each in done.result.pages] == [f"page {index}" for index in range(12)]


async def test_a_job_may_fail_or_hide(handler: DocumentAiOcr, sandbox: SandboxServer) -> None:
    """With the provider's code and words; a word that nobody knows, or a result that is not there, is no end."""
    sandbox.faults.add(FailingJob(code="too_dark", message="the page is too dark"))
    failed = await handler.query(await submitted(handler, sandbox), Claim().query)
    assert (failed.verdict, failed.error_code) == (Verdict.FAILED, "INVALID_ARGUMENT")
    assert failed.error_message == "too_dark: the page is too dark"
    query = await submitted(handler, sandbox)
    sandbox.faults.add(StatusWord(word="PAUSED"))
    assert (await handler.query(query, Claim().query)).verdict is Verdict.UNLISTED
    sandbox.faults.add(NoResult())
    assert (await handler.query(query, Claim().query)).verdict is Verdict.INCOMPLETE
    unknown = QueryParams(external_task_id=NAME, provider_params={"output": FOLDER})
    assert (await handler.query(unknown, Claim().query)).verdict is Verdict.NOT_FOUND


@pytest.mark.parametrize("url", ["gs://pages/nothing.jpg", "gs://elsewhere/letter.jpg"])
async def test_a_document_that_is_not_there_fails_its_job(
    handler: DocumentAiOcr, sandbox: SandboxServer, url: str
) -> None:
    """The provider looks for it later."""
    query = await submitted(handler, sandbox, url)
    assert (await handler.query(query, Claim().query)).verdict is Verdict.FAILED


async def test_a_job_can_be_cancelled(handler: DocumentAiOcr, sandbox: SandboxServer) -> None:
    """Until it has ended."""
    over = await submitted(handler, sandbox)
    sandbox.jobs.delay = timedelta(hours=1)
    query = await submitted(handler, sandbox)
    assert (await handler.query(query, Claim().query)).provider_status == "WAITING"
    assert await handler.cancel(query, Claim().cancel) is CancelOutcome.CONFIRMED
    assert (await handler.query(query, Claim().query)).verdict is Verdict.CANCELED
    assert await handler.cancel(over, Claim().cancel) is CancelOutcome.REFUSED


async def test_a_wrong_token_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    handler = made_for(sandbox, ApiKey("wrong"))
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(OcrRequest(url="gs://pages/letter.jpg"), Claim().submit)
    await handler.close()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/projects/p/locations/us/processors/x:process", {}, 404),
        ("POST", "/v1/projects/p/locations/us/processors/x:batchProcess", {}, 400),
        (
            "POST",
            "/v1/projects/p/locations/us/processors/x:batchProcess",
            {
                "inputDocuments": {"gcsDocuments": {"documents": [{"gcsUri": "scan", "mimeType": "x"}]}},
                "documentOutputConfig": {"gcsOutputConfig": {"gcsUri": "gs://out/"}},
            },
            400,
        ),
        ("GET", "/storage/v1/b/out/o/{folder}nothing.json", None, 404),
        ("POST", "/token", None, 400),
    ],
)
async def test_the_sandbox_is_as_strict_as_the_provider(
    handler: DocumentAiOcr, sandbox: SandboxServer, method: str, path: str, body: JSON, status: int
) -> None:
    """What breaks the rules is refused in the provider's shape."""
    query = await submitted(handler, sandbox)
    folder = f"ocr%2Ftask-1%2F{query.external_task_id.rpartition('/')[2]}%2F0%2F"
    request = HttpRequest(method=method, url=path.replace("{folder}", folder), json=body)
    answered = await handler.ask(request, Claim().query)
    assert answered.status == status
    assert "error" in answered.json_object()
