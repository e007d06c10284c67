"""Amazon Textract.

Read in 2026 from botocore 1.44.8, `data/textract/2018-06-27/service-2.json`; no live calls were made. The bucket
`pages` is what the sandbox serves under `/pages`; there are no others. Signatures are checked here without botocore.
"""

import hashlib
import hmac
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar
from urllib.parse import quote

from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.fetching import fetch_upload
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json
from coatcheck_sandbox.recognize import RecognizedPage

__all__ = ["TextractProtocol"]

_TARGETS = {
    "Textract.StartDocumentTextDetection": Operation.SUBMIT,
    "Textract.StartDocumentAnalysis": Operation.SUBMIT,
    "Textract.GetDocumentTextDetection": Operation.QUERY,
    "Textract.GetDocumentAnalysis": Operation.QUERY,
}
_STATUS_WORDS = {
    State.WAITING: "IN_PROGRESS",
    State.IN_PROGRESS: "IN_PROGRESS",
    State.SUCCEEDED: "SUCCEEDED",
    State.FAILED: "FAILED",
    State.CANCELED: "FAILED",
}
_CODES = {
    "task_not_found": "InvalidJobIdException",
    "idempotency_mismatch": "IdempotentParameterMismatchException",
}
_BUCKET = "pages"
_SIGNED = {"content-type", "host", "x-amz-date", "x-amz-target"}
"""Headers that a signature must cover."""


class TextractProtocol(WireProtocol):
    """Speaks as `https://textract.{region}.amazonaws.com` does, under `/textract`, in any region.

    `key` is the secret access key; any access key id goes with it. An answer has at most `blocks_per_answer` blocks.
    """

    prefix: ClassVar[str] = "/textract"
    routes: ClassVar[Mapping[str, Operation]] = {"POST /": Operation.OTHER}

    def __init__(self, *, key: str = "sandbox-key", blocks_per_answer: int = 1000) -> None:
        self._key = key
        self._blocks_per_answer = blocks_per_answer

    def operation_of(self, request: Request, routed: Operation) -> Operation:
        """What the header X-Amz-Target names."""
        return _TARGETS.get(_target(request), routed)

    def authorize(self, request: Request) -> None:
        """Check the signature, of Version 4, of the whole request."""
        given = request.headers.get("authorization", "")
        scheme, _, rest = given.partition(" ")
        fields = dict(each.strip().partition("=")[::2] for each in rest.split(","))
        scope = fields.get("Credential", "").split("/")
        names = fields.get("SignedHeaders", "").split(";")
        if scheme != "AWS4-HMAC-SHA256" or scope[-2:] != ["textract", "aws4_request"] or len(scope) != 5:  # noqa: PLR2004 - id, day, region, service, end
            raise RequestRefused(403, "MissingAuthenticationTokenException", "the request is not signed")
        if not set(names) >= _SIGNED or not hmac.compare_digest(
            fields.get("Signature", ""), self._signature(request, scope[1:], names)
        ):
            raise RequestRefused(
                403, "InvalidSignatureException", "the signature does not match that of the request"
            )

    def _signature(self, request: Request, scope: Sequence[str], names: Sequence[str]) -> str:
        body: bytes = getattr(request.state, "body", b"")
        headers = [f"{name}:{request.headers.get(name, '').strip()}\n" for name in names]
        parts = (
            request.method,
            request.scope["raw_path"].decode(),
            request.url.query,
            "".join(headers),
            ";".join(names),
            hashlib.sha256(body).hexdigest(),
        )
        asked = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        text = "\n".join(("AWS4-HMAC-SHA256", request.headers.get("x-amz-date", ""), "/".join(scope), asked))
        signing = f"AWS4{self._key}".encode()
        for each in (*scope, text):
            signing = hmac.digest(signing, each.encode(), "sha256")
        return signing.hex()

    async def read_upload(self, request: Request) -> Upload:
        """The object in the bucket `pages`, under the caller's token."""
        body = await self._read(request)
        token = body.get("ClientRequestToken")
        if _target(request).endswith("Analysis") and not body.get("FeatureTypes"):
            raise RequestRefused(400, "InvalidParameterException", "FeatureTypes are missing")
        bucket, name = _place(body.get("DocumentLocation"))
        if bucket != _BUCKET:
            raise RequestRefused(400, "InvalidS3ObjectException", f"there is no bucket {bucket!r}")
        upload = await fetch_upload(
            f"{str(request.base_url).rstrip('/')}/pages/{quote(name, safe='')}",
            model=_target(request).removeprefix("Textract.Start"),
            name=name,
            token=token if isinstance(token, str) else None,
        )
        if upload.failure is not None:
            raise RequestRefused(400, "InvalidS3ObjectException", upload.failure.message)
        return upload

    async def read_job_id(self, request: Request) -> str:
        """The member `JobId`."""
        return str((await self._read(request)).get("JobId", ""))

    async def _read(self, request: Request) -> Mapping[str, object]:
        request.state.body = await request.body()
        return await read_json(request)

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The id alone."""
        return Reply(body={"JobId": snapshot.job_id})

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The status and, once it has succeeded, some of the blocks; `NextToken` tells where the rest begins."""
        if _target(request) != f"Textract.Get{snapshot.model}":
            raise RequestRefused(400, "InvalidJobIdException", "the job is of another operation")
        body: dict[str, object] = {"JobStatus": snapshot.status_word or _STATUS_WORDS[snapshot.state]}
        if snapshot.failure is not None:
            body["StatusMessage"] = f"{snapshot.failure.code}: {snapshot.failure.message}"
        if snapshot.recognition is not None:
            body |= self._part(snapshot.recognition.pages, json.loads(request.state.body))
        return Reply(body=body)

    def _part(self, pages: Sequence[RecognizedPage], asked: Mapping[str, object]) -> Mapping[str, object]:
        blocks = [block for number, page in enumerate(pages, 1) for block in _blocks(number, page)]
        token, most = str(asked.get("NextToken", "0")), asked.get("MaxResults", 1000)
        if not token.isdecimal() or not isinstance(most, int):
            raise RequestRefused(400, "InvalidParameterException", "NextToken or MaxResults is wrong")
        begin, end = int(token), int(token) + min(most, self._blocks_per_answer)
        rest = {"NextToken": str(end)} if end < len(blocks) else {}
        return {"DocumentMetadata": {"Pages": len(pages)}, "Blocks": blocks[begin:end], **rest}

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error envelope."""
        code = _CODES.get(refusal.code, refusal.code)
        return Reply(
            status=400 if refusal.code in _CODES else refusal.status,
            body={"__type": code, "message": str(refusal)},
            media_type="application/x-amz-json-1.1",
        )


def _target(request: Request) -> str:
    return str(request.headers.get("x-amz-target", ""))


def _place(location: object) -> tuple[str, str]:
    found = location.get("S3Object") if isinstance(location, Mapping) else None
    if not isinstance(found, Mapping) or not found.get("Bucket") or not found.get("Name"):
        raise RequestRefused(400, "InvalidParameterException", "DocumentLocation.S3Object is missing")
    return str(found["Bucket"]), str(found["Name"])


def _blocks(number: int, page: RecognizedPage) -> Iterator[Mapping[str, object]]:
    """The blocks of one page: the page, its lines, and their words."""
    lines = [
        (f"p{number}-b{place}-l{index}", text, block)
        for place, block in enumerate(page.blocks)
        for index, text in enumerate(block.text.splitlines())
    ]
    whole = {"BoundingBox": {"Left": 0.0, "Top": 0.0, "Width": 1.0, "Height": 1.0}}
    yield _block(f"p{number}", "PAGE", number, whole, children=[each for each, _, _ in lines])
    for key, text, block in lines:
        width, height = page.width or 1.0, page.height or 1.0
        box = {
            "Left": block.left / width,
            "Top": block.top / height,
            "Width": (block.right - block.left) / width,
            "Height": (block.bottom - block.top) / height,
        }
        words = [(f"{key}-w{index}", word) for index, word in enumerate(text.split())]
        place = {"BoundingBox": box}
        yield _block(key, "LINE", number, place, text=text, children=[each for each, _ in words])
        for each, word in words:
            yield _block(each, "WORD", number, place, text=word)


def _block(
    key: str,
    kind: str,
    number: int,
    geometry: Mapping[str, object],
    *,
    text: str | None = None,
    children: Sequence[str] = (),
) -> Mapping[str, object]:
    block: dict[str, object] = {"Id": key, "BlockType": kind, "Page": number, "Geometry": geometry}
    if text is not None:
        block |= {"Text": text, "Confidence": 99.0}
    if children:
        block["Relationships"] = [{"Type": "CHILD", "Ids": list(children)}]
    return block
