import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from attrs import evolve

from coatcheck.errors import (
    ConfigurationError,
    HandlerError,
    InvalidParams,
    QueryFailed,
    SubmitDeferred,
    SubmitRejected,
)
from coatcheck.persistable import to_json
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import JSON, QueryParams, Status
from coatcheck_conformance import HandlerConformance, HandlerSpec, Means, Script
from coatcheck_conformance import Reply as KitReply
from coatcheck_handler_ocr.aws import AwsAccount, S3Object, s3_object, sign
from coatcheck_handler_ocr.request import OcrRequest, OutputFormat
from coatcheck_handler_ocr.result import OcrBlock, OcrResult
from coatcheck_handler_ocr.textract import TextractOcr, TextractOcrSettings
from coatcheck_http import (
    ErrorClass,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    OutcomeUnknown,
    PreparedContext,
    UnreadableAnswer,
)
from coatcheck_http.testing import Claim, Reply, ScriptedServer
from coatcheck_sandbox import Answer, FailingJob, NoResult, Operation, SandboxServer, describe
from coatcheck_sandbox.providers.textract import TextractProtocol

MIB = 1024 * 1024
DETECTION = QueryParams(external_task_id="j1", provider_params={"operation": "DocumentTextDetection"})
ANALYSIS = QueryParams(external_task_id="j1", provider_params={"operation": "DocumentAnalysis"})
ACCOUNT = AwsAccount(access_key_id="AKIAEXAMPLE", secret_access_key="aws-secret-of-one")
BOX: JSON = {"BoundingBox": {"Left": 0.1, "Top": 0.2, "Width": 0.5, "Height": 0.25}}


def line(text: str, page: int | None = None, *words: str, key: str = "l") -> dict[str, JSON]:
    """Return a LINE."""
    found: dict[str, JSON] = {"Id": key, "BlockType": "LINE", "Text": text}
    if page is not None:
        found["Page"] = page
    if words:
        found["Relationships"] = [{"Type": "CHILD", "Ids": list(words)}]
    return found


def error(code: str, message: str = "no", status: int = 400) -> KitReply:
    """Return an error of the provider."""
    return KitReply.of({"__type": code, "message": message}, status=status)


# The kit.


def status(word: str) -> JSON:
    """Return a job with this status word."""
    body: dict[str, JSON] = {"JobStatus": word}
    if word in {"SUCCEEDED", "PARTIAL_SUCCESS"}:
        body |= {"DocumentMetadata": {"Pages": 1}, "Blocks": [line("Hello", 1)]}
    return body | ({"StatusMessage": "unreadable"} if word == "FAILED" else {})


def textract_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its service model describes it."""
    return HandlerSpec(
        "coatcheck_handler_ocr.textract:TextractOcr",
        key="ocr:textract",
        params=lambda _url: OcrRequest(url="s3://scans/2026/scan.pdf"),
        settings=lambda url: TextractOcrSettings(
            base_url=url, read_timeout=timedelta(seconds=1), max_answer_bytes=2 * MIB
        ),
        accounts={
            "default": evolve(ACCOUNT, session_token="session-token-of-one"),
            "other": AwsAccount(
                access_key_id="AKIAOTHER",
                secret_access_key="aws-secret-of-another",
                session_token="session-token-of-another",
            ),
        },
        creating_request=lambda request: request.headers.get("x-amz-target", "").startswith("Textract.Start"),
        script=Script(
            job="j1",
            accepted=KitReply.of({"JobId": "j1"}),
            status=status,
            words={word.upper(): Means(state) for word, state in TextractOcr.statuses.words.items()},
            rejected=error("UnsupportedDocumentException"),
            rate_limited=error("ProvisionedThroughputExceededException"),
            not_found=error("InvalidJobIdException"),
            error=lambda message: {"__type": "SomeException", "message": message},
            done_without_result=KitReply.of({"JobStatus": "SUCCEEDED"}),
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestTextractOcr(HandlerConformance):
    """The handler of Amazon Textract keeps every promise."""

    require = (
        "account", "two accounts", "document fields", "nested fields", "answer without a result",
        "idempotency_window",
    )  # fmt: skip

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider as its service model describes it."""
        return textract_spec()


# Documents in S3.


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("s3://scans/a/b.pdf", S3Object(bucket="scans", key="a/b.pdf")),
        ("s3://My_Bucket/a%20b?c=1", S3Object(bucket="My_Bucket", key="a%20b?c=1")),
        (
            "https://scans.s3.eu-central-1.amazonaws.com/a/b%20c.pdf",
            S3Object(bucket="scans", key="a/b c.pdf", region="eu-central-1"),
        ),
        ("https://my.scans.s3.amazonaws.com/b.pdf", S3Object(bucket="my.scans", key="b.pdf")),
        (
            "https://s3.us-gov-west-1.amazonaws.com/scans/b.pdf",
            S3Object(bucket="scans", key="b.pdf", region="us-gov-west-1"),
        ),
        ("https://s3.amazonaws.com:443/scans/a/b.pdf", S3Object(bucket="scans", key="a/b.pdf")),
        (
            "https://scans.s3.cn-north-1.amazonaws.com.cn/b",
            S3Object(bucket="scans", key="b", region="cn-north-1"),
        ),
    ],
)
def test_objects_are_named_in_three_ways(url: str, found: S3Object) -> None:
    """By s3:, by the bucket's own host, and by a path; the key is decoded where it was encoded."""
    assert s3_object(url) == found
    TextractOcr(settings=TextractOcrSettings(region=found.region or "us-east-1")).validate(
        OcrRequest(url=url)
    )


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://files.example.com/b.pdf", "not in S3"),
        ("https://scans.s3.amazonaws.com.example.com/b.pdf", "not in S3"),
        ("https://s3.amazonaws.com:8443/scans/b.pdf", "not in S3"),
        ("https://scans.s3-accelerate.amazonaws.com/b.pdf", "not in S3"),
        ("https://scans.s3.amazonaws.com/b.pdf?X-Amz-Signature=aa", "query"),
        ("https://s3.amazonaws.com/scans", "no key"),
        ("https://s3.amazonaws.com/", "no bucket"),
        ("https://scans.s3.amazonaws.com/a%23b", "#"),
        ("https://scans.s3.amazonaws.com/a#b", "#"),
        ("s3://ab/b.pdf", "no bucket"),
        (f"s3://scans/{'k' * 1025}", "1024 characters"),
        ("s3://[scans/b.pdf", "malformed"),
    ],
)
def test_what_is_no_object_is_refused(url: str, why: str) -> None:
    """Before anything is sent, with the way out and without what a query may give away."""
    with pytest.raises(InvalidParams, match=why) as caught:
        s3_object(url)
    assert "upload the document to a bucket" in str(caught.value)
    assert "Signature" not in str(caught.value)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (OcrRequest(url="https://scans.s3.eu-west-1.amazonaws.com/b.pdf"), "'eu-west-1'"),
        (OcrRequest(url="http://s3.amazonaws.com/scans/b.pdf"), "s3 or https"),
        (OcrRequest(url="gs://scans/b.pdf"), "s3 or https"),
        (OcrRequest(url="https://files.example.com/b.pdf"), "s3://bucket/key"),
        (OcrRequest(url="s3://scans/b", pages="1-2"), "`pages`"),
        (OcrRequest(url="s3://scans/b", outputs=(OutputFormat.HTML,)), "html"),
        (OcrRequest(url="s3://scans/b", options={"FeatureTypes": "TABLES"}), "FeatureTypes"),
        (OcrRequest(url="s3://scans/b", options={"FeatureTypes": [1]}), "FeatureTypes"),
    ],
)
def test_requests_that_cannot_be_met_are_refused(request_: OcrRequest, why: str) -> None:
    """At the time of submission, by whoever submits."""
    with pytest.raises(InvalidParams, match=why):
        TextractOcr().validate(request_)


# What is sent.


def built(request: OcrRequest, key: str = "key-1", **settings: object) -> HttpRequest:
    """Return the creating request."""
    made = TextractOcrSettings(**settings)  # type: ignore[arg-type] # as tests like
    known = Claim().submit
    context = PreparedContext(
        task_id=known.task_id,
        account_id=None,
        idempotency_key=key,
        now=known.now,
        created_at=known.created_at,
        deadline_at=known.deadline_at,
        ensure_held=known.ensure_held,
    )
    return TextractOcr(settings=made).build_submit(request, context)


def test_text_is_detected_unless_more_is_wanted() -> None:
    """Options go along, beneath what the handler sets."""
    options: dict[str, JSON] = {"JobTag": "invoices", "DocumentLocation": "x", "ClientRequestToken": "y"}
    sent = built(OcrRequest(url="s3://scans/a/b.pdf", options=options))
    assert (sent.method, sent.url) == ("POST", "/")
    assert {name.lower(): value for name, value in sent.headers.items()} == {
        "x-amz-target": "Textract.StartDocumentTextDetection",
        "content-type": "application/x-amz-json-1.1",
    }
    assert sent.json == {
        "JobTag": "invoices",
        "DocumentLocation": {"S3Object": {"Bucket": "scans", "Name": "a/b.pdf"}},
        "ClientRequestToken": "key-1",
    }


@pytest.mark.parametrize(
    ("options", "tables", "settings", "features"),
    [
        ({}, None, (), None),
        ({}, False, ("TABLES",), None),
        ({}, True, (), ["TABLES"]),
        ({}, None, ("FORMS", "TABLES"), ["FORMS", "TABLES"]),
        ({}, True, ("TABLES", "FORMS"), ["FORMS", "TABLES"]),
        ({"FeatureTypes": ["LAYOUT"]}, None, ("FORMS",), ["LAYOUT"]),
        ({"FeatureTypes": []}, None, ("FORMS",), None),
    ],
)
def test_features_make_it_an_analysis(
    options: dict[str, JSON], *, tables: bool | None, settings: tuple[str, ...], features: JSON
) -> None:
    """Of the settings, or the request's options; `tables` has the last word. Queries know what was started."""
    request = OcrRequest(url="s3://scans/b", options=options, tables=tables)
    sent = built(request, features=settings)
    kind = "DocumentTextDetection" if features is None else "DocumentAnalysis"
    assert isinstance(sent.json, dict)
    assert sent.json.get("FeatureTypes") == features
    assert sent.headers["x-amz-target"] == f"Textract.Start{kind}"
    handler = TextractOcr(settings=TextractOcrSettings(features=settings))
    query = handler.create_query_params(HttpResponse(status=200, body=b'{"JobId":"j1"}'), request)
    assert query == QueryParams(external_task_id="j1", provider_params={"operation": kind})
    asked = handler.build_query(query, Claim().query)
    assert (asked.headers["x-amz-target"], asked.json) == (f"Textract.Get{kind}", {"JobId": "j1"})


@pytest.mark.parametrize("key", ["order 7", "x" * 65, "réf", "a.b"])
def test_a_key_that_the_provider_would_refuse_is_hashed(key: str) -> None:
    """The same key is the same token, of letters and digits; keys that fit are sent as they are."""
    tokens = [built(OcrRequest(url="s3://scans/b"), each).json for each in (key, key, f"{key}2")]
    first, again, other = [each["ClientRequestToken"] for each in tokens if isinstance(each, dict)]
    assert isinstance(first, str)
    assert first == again != other
    assert first.isalnum()
    assert len(first) <= 64


@pytest.mark.parametrize(
    ("region", "base_url"),
    [
        ("us-east-1", "https://textract.us-east-1.amazonaws.com"),
        ("cn-north-1", "https://textract.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_the_region_says_where_the_provider_is(region: str, base_url: str) -> None:
    """Unless the settings say otherwise."""
    assert TextractOcr(settings=TextractOcrSettings(region=region)).base_url == base_url
    assert TextractOcr(settings=HttpSettings()).base_url == "https://textract.us-east-1.amazonaws.com"
    own = TextractOcrSettings(region=region, base_url="https://gate.example.com")
    assert TextractOcr(settings=own).base_url == "https://gate.example.com"


@pytest.mark.parametrize(
    "settings",
    [{"region": "Frankfurt"}, {"features": "TABLES"}, {"max_answers": 0}, {"max_blocks": 0}],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, object]) -> None:
    """When they are made."""
    with pytest.raises(ConfigurationError):
        TextractOcrSettings(**settings)  # type: ignore[arg-type] # what is refused


# Signatures.


async def test_a_signature_is_that_of_the_request() -> None:
    """Of its body, its headers and the host, with the session's token; header and body are sent as they were signed."""
    account = evolve(ACCOUNT, session_token="session-token")
    plain = HttpRequest.post("https://textract.eu-west-1.amazonaws.com/", json={"a": "é"}).encoded()
    signed = await sign(plain, account, region="eu-west-1", service="textract")
    headers = {name.lower(): value for name, value in signed.headers.items()}
    assert signed.content == plain.content
    assert headers["x-amz-security-token"] == "session-token"
    day = headers["x-amz-date"][:8]
    assert headers["authorization"].startswith(
        f"AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/{day}/eu-west-1/textract/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature="
    )


async def test_without_botocore_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task waits, and the message says what to do."""
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    handler = TextractOcr(ACCOUNT)
    with pytest.raises(ConfigurationError, match=r"pip install 'coatcheck-handler-ocr\[textract\]'"):
        await handler.authenticate(
            HttpRequest.post("https://x.example.com/", json={}).encoded(), Claim().submit
        )


def test_the_module_needs_no_botocore() -> None:
    """Processes that only submit tasks import nothing of it."""
    code = "import sys, coatcheck_handler_ocr.textract; sys.exit('botocore' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=50)


def test_an_account_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the variables that every tool of the provider takes."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    with pytest.raises(ConfigurationError, match="AWS_ACCESS_KEY_ID"):
        AwsAccount.from_env()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-environment")
    found = AwsAccount.from_env()
    assert (found.access_key_id, found.secret_access_key.reveal()) == ("AKIAENV", "of-the-environment")
    assert found.session_token is None
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-of-the-environment")
    token = AwsAccount.from_env().session_token
    assert token is not None
    assert token.reveal() == "token-of-the-environment"


# Answers.


def answer(body: JSON, status: int = 200, **headers: str) -> HttpResponse:
    """Return an answer of the provider."""
    content = Reply.of(body).raw.partition(b"\r\n\r\n")[2]
    return HttpResponse(status=status, headers=headers, body=content)


async def read(body: JSON, job: QueryParams = ANALYSIS) -> QueryResult:
    """Return what a query answered with `body` comes to."""
    handler, claim = TextractOcr(), Claim()
    return await handler.fetch_result(handler.parse_query(answer(body), job, claim.query), claim.query)


@pytest.mark.parametrize(
    ("word", "verdict", "state"),
    [
        ("IN_PROGRESS", Verdict.RUNNING, Status.RUNNING),
        ("SUCCEEDED", Verdict.SUCCEEDED, Status.RUNNING),
        ("PARTIAL_SUCCESS", Verdict.SUCCEEDED, Status.RUNNING),
        ("FAILED", Verdict.FAILED, Status.RUNNING),
        ("STOPPED", Verdict.UNLISTED, Status.RUNNING),
    ],
)
async def test_every_word_is_mapped(word: str, verdict: Verdict, state: Status) -> None:
    """A word that is not documented is unlisted."""
    found = await read({"JobStatus": word, "Blocks": [line("x")]})
    assert (found.verdict, found.status, found.provider_status) == (verdict, state, word)


async def test_a_failed_job_says_why() -> None:
    """In the provider's words, if it has any."""
    assert (await read({"JobStatus": "FAILED", "StatusMessage": "too dark"})).error_message == "too dark"
    assert (await read({"JobStatus": "FAILED"})).error_message == "the job failed"


async def test_lines_are_put_to_their_pages() -> None:
    """With their places, as fractions of the page; a page without a number is the first."""
    blocks: JSON = [
        {"Id": "p1", "BlockType": "PAGE", "Page": 1, "Geometry": BOX},
        {**line("Hello"), "Geometry": BOX},
        line("World", 1),
        {"Id": "p2", "BlockType": "PAGE", "Page": 2},
        line("Next", 2),
        {"Id": "w", "BlockType": "WORD", "Text": "Next", "Page": 2},
        7,
        {"BlockType": 7},
    ]
    body: JSON = {"JobStatus": "SUCCEEDED", "DocumentMetadata": {"Pages": 2}, "Blocks": blocks}
    for job in (ANALYSIS, DETECTION):
        result = (await read(body, job)).result
        assert isinstance(result, OcrResult)
        assert (result.markdown, result.usage, result.warnings) == ("Hello\nWorld\n\nNext", {"Pages": 2}, ())
        assert [(each.index, each.width, each.height) for each in result.pages] == [
            (0, 1.0, 1.0),
            (1, 1.0, 1.0),
        ]
        assert result.pages[0].blocks == (
            OcrBlock(kind="LINE", text="Hello", box=(0.1, 0.2, 0.6, 0.45)),
            OcrBlock(kind="LINE", text="World"),
        )
        to_json(result)


def cell(row: int, column: int, *words: str) -> dict[str, JSON]:
    """Return a CELL."""
    return {
        "Id": f"c{row}{column}",
        "BlockType": "CELL",
        "RowIndex": row,
        "ColumnIndex": column,
        "Relationships": [{"Type": "CHILD", "Ids": list(words)}],
    }


async def test_tables_stand_where_their_first_line_stands() -> None:
    """As Markdown, with marks for boxes that are ticked; their lines are not repeated; answers stay blocks."""
    cells = ["c11", "c12", "c21", "c22", "gone"]
    words = {"wa": "a|b", "wb": "B", "wc": "c", "wx": "Title", "wy": "end"}
    blocks: list[JSON] = [
        line("Title", 1, "wx", key="l1"),
        line("a|b B", 1, "wa", "wb", key="l2"),
        line("c", 1, "wc", key="l3"),
        line("end", 1, "wy", key="l4"),
        {
            "Id": "t",
            "BlockType": "TABLE",
            "Page": 1,
            "Relationships": [{"Type": "MERGED_CELL", "Ids": ["m"]}, {"Type": "CHILD", "Ids": [*cells]}],
        },
        cell(1, 1, "wa"),
        cell(1, 2, "wb"),
        cell(2, 1, "wc"),
        cell(2, 2, "s"),
        *({"Id": key, "BlockType": "WORD", "Text": text} for key, text in words.items()),
        {"Id": "s", "BlockType": "SELECTION_ELEMENT", "SelectionStatus": "SELECTED"},
        {"Id": "e", "BlockType": "TABLE", "Page": 1},
        {"Id": "q", "BlockType": "QUERY_RESULT", "Text": "42", "Page": 1},
    ]
    result = (await read({"JobStatus": "SUCCEEDED", "Blocks": blocks})).result
    assert isinstance(result, OcrResult)
    assert result.markdown == "Title\n\n| a\\|b | B |\n| --- | --- |\n| c | [x] |\n\nend"
    assert [each.kind for each in result.pages[0].blocks] == [
        "LINE",
        "TABLE",
        "LINE",
        "QUERY_RESULT",
        "TABLE",
    ]


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ({"JobStatus": "SUCCEEDED"}, Verdict.INCOMPLETE),
        ({"JobStatus": "SUCCEEDED", "Blocks": None}, Verdict.INCOMPLETE),
        ({"JobStatus": "SUCCEEDED", "Blocks": []}, Verdict.SUCCEEDED),
        ({"JobStatus": "SUCCEEDED", "Blocks": [{"Id": "p", "BlockType": "PAGE"}]}, Verdict.SUCCEEDED),
    ],
)
async def test_an_empty_document_is_told_from_a_missing_result(body: JSON, verdict: Verdict) -> None:
    """No blocks at all are asked for again; a page without text is a result, with a warning."""
    found = await read(body)
    assert found.verdict is verdict
    if isinstance(found.result, OcrResult):
        assert (found.result.markdown, found.result.warnings) == ("", ("the provider found no text",))


async def test_partial_success_is_a_result_with_warnings() -> None:
    """Which say what is missing."""
    body: JSON = {
        "JobStatus": "PARTIAL_SUCCESS",
        "StatusMessage": "some pages",
        "Blocks": [line("Hello", 1)],
        "Warnings": [{"ErrorCode": "INTERNAL_ERROR", "Pages": [2, 3]}, {"Pages": None}],
    }
    result = (await read(body)).result
    assert isinstance(result, OcrResult)
    assert result.warnings == (
        "the provider read the document in part: some pages",
        "INTERNAL_ERROR on pages 2, 3",
        "a warning without a code",
    )


@pytest.mark.parametrize(
    ("body", "headers", "code"),
    [
        ({"__type": "ThrottlingException", "message": "m"}, {}, "ThrottlingException"),
        ({"__type": "com.amazonaws.textract#ThrottlingException", "Message": "m"}, {}, "ThrottlingException"),
        ({"message": "m"}, {"x-amzn-errortype": "ThrottlingException:http://x"}, "ThrottlingException"),
        ({"message": "m"}, {}, None),
        ({"__type": "IdempotentParameterMismatchException", "message": "m"}, {}, "mismatch"),
    ],
)
def test_codes_are_found_in_body_and_header(body: JSON, headers: dict[str, str], code: str | None) -> None:
    """Without what surrounds them; that our token is known is looked at with the task at hand."""
    found = TextractOcr().read_error(answer(body, 400, **headers))
    assert (found and (found.code, found.message)) == (None if code == "mismatch" else (code, "m"))


@pytest.mark.parametrize(
    ("code", "status", "raised", "rate_limited"),
    [
        ("LimitExceededException", 400, SubmitDeferred, True),
        ("ProvisionedThroughputExceededException", 400, SubmitDeferred, True),
        ("ThrottlingException", 500, SubmitDeferred, True),
        ("AccessDeniedException", 400, SubmitDeferred, False),
        ("UnrecognizedClientException", 400, SubmitDeferred, False),
        ("ExpiredTokenException", 400, SubmitDeferred, False),
        ("InvalidSignatureException", 400, SubmitDeferred, False),
        ("BadDocumentException", 400, SubmitRejected, False),
        ("DocumentTooLargeException", 400, SubmitRejected, False),
        ("InvalidKMSKeyException", 400, SubmitRejected, False),
        ("InvalidParameterException", 400, SubmitRejected, False),
        ("InvalidS3ObjectException", 400, SubmitRejected, False),
        ("UnsupportedDocumentException", 400, SubmitRejected, False),
        ("InternalServerError", 500, OutcomeUnknown, False),
    ],
)
async def test_errors_prove_what_they_prove(
    code: str, status: int, raised: type[HandlerError], *, rate_limited: bool
) -> None:
    """A limit of jobs at once is a 400, and nobody's fault; an error of the provider proves nothing."""
    reply = Reply.of({"__type": code, "message": "m"}, status=status)
    async with ScriptedServer([reply]) as server:
        handler = TextractOcr(ACCOUNT, settings=TextractOcrSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(raised, match=code) as caught:
            await handler.submit(OcrRequest(url="s3://scans/b"), Claim().submit)
        await handler.close()
    if isinstance(caught.value, SubmitDeferred):
        assert caught.value.rate_limited is rate_limited


@pytest.mark.parametrize(("attempts", "raised"), [(0, SubmitRejected), (1, OutcomeUnknown)])
async def test_a_token_that_is_known_may_stand_for_a_job(attempts: int, raised: type[HandlerError]) -> None:
    """At the first attempt it was somebody else's; later it may be a job of this task whose answer was lost."""
    reply = Reply.of({"__type": "IdempotentParameterMismatchException", "message": "m"}, status=400)
    async with ScriptedServer([reply]) as server:
        handler = TextractOcr(ACCOUNT, settings=TextractOcrSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(raised, match="token 'key-1'"):
            await handler.submit(
                OcrRequest(url="s3://scans/b"), evolve(Claim().submit, submit_attempts=attempts)
            )
        await handler.close()


async def test_an_answer_without_an_id_is_unreadable() -> None:
    """The job may well be there."""
    with pytest.raises(UnreadableAnswer, match="JobId"):
        TextractOcr().create_query_params(answer({}), OcrRequest(url="s3://scans/b"))


def test_every_documented_error_has_a_class() -> None:
    """Limits of jobs at once are told from those of requests."""
    codes = TextractOcr.error_codes
    assert codes["LimitExceededException"] is ErrorClass.CONCURRENCY_LIMITED
    assert codes["InvalidJobIdException"] is ErrorClass.NOT_FOUND_OR_EXPIRED
    assert len(codes) == 18


# Results in parts.


def part(text: str, token: str | None, **more: JSON) -> Reply:
    """Return a part of a result."""
    body: dict[str, JSON] = {"JobStatus": "SUCCEEDED", "Blocks": [line(text, 1)], **more}
    return Reply.of(body if token is None else {**body, "NextToken": token})


async def fetched(replies: list[Reply], **settings: object) -> tuple[QueryResult, ScriptedServer]:
    """Query a job of which these are the answers."""
    async with ScriptedServer(replies) as server:
        made = TextractOcrSettings(base_url=server.url, **settings)  # type: ignore[arg-type] # as tests like
        handler = TextractOcr(ACCOUNT, settings=made)
        await handler.open()
        try:
            return await handler.query(DETECTION, Claim().query), server
        finally:
            await handler.close()


async def test_a_result_in_parts_is_read_to_its_end() -> None:
    """Each part is asked for with the token of the one before, and signed; warnings are told once."""
    warned: JSON = [{"ErrorCode": "W", "Pages": [1]}]
    replies = [part("one", "t1", Warnings=warned), part("two", "t2"), part("three", None, Warnings=warned)]
    found, server = await fetched(replies)
    assert isinstance(found.result, OcrResult)
    assert (found.result.markdown, found.result.warnings) == ("one\ntwo\nthree", ("W on pages 1",))
    assert [each.body for each in server.requests] == [
        b'{"JobId": "j1"}',
        b'{"JobId": "j1", "NextToken": "t1"}',
        b'{"JobId": "j1", "NextToken": "t2"}',
    ]
    for each in server.requests:
        assert each.headers["x-amz-target"] == "Textract.GetDocumentTextDetection"
        assert each.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/")


async def test_a_first_part_may_be_empty() -> None:
    """What counts is that there is more."""
    found, _ = await fetched([Reply.of({"JobStatus": "SUCCEEDED", "NextToken": "t"}), part("two", None)])
    assert isinstance(found.result, OcrResult)
    assert found.result.markdown == "two"


@pytest.mark.parametrize("limit", [{"max_answers": 2}, {"max_blocks": 2}])
async def test_a_result_without_an_end_is_cut(limit: dict[str, object]) -> None:
    """With a warning that says so, rather than asked for for ever."""
    found, server = await fetched([part("one", "t")], **limit)
    assert isinstance(found.result, OcrResult)
    assert found.result.markdown == "one\none"
    assert "raise the settings max_answers and max_blocks" in found.result.warnings[0]
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("reply", "code", "rate_limited"),
    [
        (Reply.of({"__type": "ThrottlingException"}, status=400), "ThrottlingException", True),
        (Reply.of({"message": "m"}, status=429), "rate_limited", True),
        (Reply.of({"message": "m"}, status=500), "provider_unavailable", False),
    ],
)
async def test_a_part_that_cannot_be_had_fails_the_query(
    reply: Reply, code: str, *, rate_limited: bool
) -> None:
    """The next one begins anew: half a document is no result."""
    with pytest.raises(QueryFailed) as caught:
        await fetched([part("one", "t"), reply])
    assert (caught.value.code, caught.value.rate_limited) == (code, rate_limited)


# From end to end, against the sandbox.


@pytest.fixture
def sandbox() -> Iterator[SandboxServer]:
    """A provider that speaks the protocol of Textract, two blocks at a time, without an OCR engine."""
    with SandboxServer(protocols=[TextractProtocol(blocks_per_answer=2)], recognizer=describe) as server:
        yield server


def made_for(sandbox: SandboxServer, key: str = "sandbox-key", **settings: object) -> TextractOcr:
    """Return a handler of the sandbox."""
    own = TextractOcrSettings(base_url=f"{sandbox.url}/textract", **settings)  # type: ignore[arg-type] # as tests like
    return TextractOcr(AwsAccount(access_key_id="AKIASANDBOX", secret_access_key=key), settings=own)


@pytest.fixture
async def handler(sandbox: SandboxServer) -> AsyncIterator[TextractOcr]:
    """A handler that is open."""
    made = made_for(sandbox)
    await made.open()
    yield made
    await made.close()


async def submitted(
    handler: TextractOcr, sandbox: SandboxServer, *, tables: bool | None = None
) -> QueryParams:
    """Submit the letter, and return what its queries need."""
    accepted = await handler.submit(OcrRequest(url="s3://pages/letter.jpg", tables=tables), Claim().submit)
    assert accepted.query_params is not None
    assert await asyncio.to_thread(sandbox.jobs.wait_recognized, 30)
    return accepted.query_params


@pytest.mark.parametrize("tables", [None, True])
async def test_a_document_is_read(
    handler: TextractOcr, sandbox: SandboxServer, *, tables: bool | None
) -> None:
    """Submitted once, queried, and read in parts, whatever the operation; signatures match."""
    query = await submitted(handler, sandbox, tables=tables)
    done = await handler.query(query, Claim().query)
    assert isinstance(done.result, OcrResult)
    assert "letter.jpg" in done.result.markdown
    assert done.result.usage == {"Pages": 1}
    assert len(done.result.pages[0].blocks) == 2
    to_json(done.result)
    assert (sandbox.creating_requests("letter.jpg"), sandbox.created_jobs("letter.jpg")) == (1, 1)


async def test_the_same_key_is_the_same_job(handler: TextractOcr, sandbox: SandboxServer) -> None:
    """So a submission whose answer was lost may be sent again."""
    first, again = [await submitted(handler, sandbox) for _ in range(2)]
    assert first == again
    assert (sandbox.creating_requests("letter.jpg"), sandbox.created_jobs("letter.jpg")) == (2, 1)
    with pytest.raises(SubmitRejected, match="IdempotentParameterMismatchException"):
        await handler.submit(OcrRequest(url="s3://pages/invoice.jpg"), Claim().submit)


async def test_a_job_may_fail_or_hide_its_result(handler: TextractOcr, sandbox: SandboxServer) -> None:
    """The former ends the task; the latter is asked for again."""
    sandbox.faults.add(FailingJob(code="too_dark", message="the page is too dark"))
    query = await submitted(handler, sandbox)
    failed = await handler.query(query, Claim().query)
    assert (failed.verdict, failed.error_message) == (Verdict.FAILED, "too_dark: the page is too dark")
    sandbox.faults.add(NoResult())
    assert (await handler.query(query, Claim().query)).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize(
    ("job", "verdict"),
    [
        (DETECTION, Verdict.NOT_FOUND),
        (ANALYSIS, Verdict.NOT_FOUND),
    ],
)
async def test_an_unknown_job_is_not_found(handler: TextractOcr, job: QueryParams, verdict: Verdict) -> None:
    """The worker takes it for "not yet" at first, and then for lost."""
    assert (await handler.query(job, Claim().query)).verdict is verdict


@pytest.mark.parametrize(
    ("url", "raised", "code"),
    [
        ("s3://pages/nothing.jpg", SubmitRejected, "InvalidS3ObjectException"),
        ("s3://elsewhere/letter.jpg", SubmitRejected, "InvalidS3ObjectException"),
    ],
)
async def test_an_object_that_is_not_there_is_refused(
    handler: TextractOcr, url: str, raised: type[HandlerError], code: str
) -> None:
    """By the provider, at once."""
    with pytest.raises(raised) as caught:
        await handler.submit(OcrRequest(url=url), Claim().submit)
    assert caught.value.code == code


async def test_a_wrong_key_defers(sandbox: SandboxServer) -> None:
    """An operator can mend it, so no task fails of it."""
    handler = made_for(sandbox, "wrong")
    await handler.open()
    with pytest.raises(SubmitDeferred, match="auth"):
        await handler.submit(OcrRequest(url="s3://pages/letter.jpg"), Claim().submit)
    await handler.close()


async def test_too_many_jobs_at_once_wait(handler: TextractOcr, sandbox: SandboxServer) -> None:
    """A limit of the provider's, told by a 400, sends the task back to the queue."""
    sandbox.faults.add(
        Answer(operation=Operation.SUBMIT, status=400, code="LimitExceededException", message="busy")
    )
    with pytest.raises(SubmitDeferred) as caught:
        await handler.submit(OcrRequest(url="s3://pages/letter.jpg"), Claim().submit)
    assert caught.value.rate_limited


@pytest.mark.parametrize(
    ("target", "body", "status", "code"),
    [
        ("StartDocumentAnalysis", {}, 400, "InvalidParameterException"),
        ("StartDocumentTextDetection", {"DocumentLocation": {}}, 400, "InvalidParameterException"),
        ("GetDocumentAnalysis", {"JobId": "job", "NextToken": "x"}, 400, "InvalidJobIdException"),
        ("GetDocumentTextDetection", {"JobId": "job", "NextToken": "x"}, 400, "InvalidParameterException"),
        ("DeleteAdapter", {}, 403, "InvalidSignatureException"),
    ],
)
async def test_the_sandbox_is_as_strict_as_the_provider(
    handler: TextractOcr, sandbox: SandboxServer, target: str, body: dict[str, JSON], status: int, code: str
) -> None:
    """What breaks the rules is refused in the provider's shape."""
    query = await submitted(handler, sandbox)
    known = {name: query.external_task_id if each == "job" else each for name, each in body.items()}
    request = HttpRequest.post("/", json=known, headers={"x-amz-target": f"Textract.{target}"})
    answered = await handler.ask(request, Claim().query)
    assert (answered.status, answered.json_object()["__type"]) == (status, code)
    unsigned = await handler.request_token(request)
    assert (unsigned.status, unsigned.json_object()["__type"]) in {
        (403, "MissingAuthenticationTokenException"),
        (400, "InvalidParameterException"),
    }
