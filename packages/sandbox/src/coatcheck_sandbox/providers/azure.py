"""Azure AI Document Intelligence.

Read from `DocumentIntelligence.json` of Azure/azure-rest-api-specs (stable/2024-11-30) and Microsoft's error guide;
no live calls were made. Spans are counted in code points, so other string index types are refused.
"""

import hmac
from collections.abc import Mapping
from typing import ClassVar

from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.fetching import fetch_upload
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json
from coatcheck_sandbox.recognize import Recognition

__all__ = ["AzureProtocol"]

_VERSION = "2024-11-30"
_BREAK = {"markdown": "\n\n<!-- PageBreak -->\n\n", "text": "\n"}
_STATUS_WORDS = {
    State.WAITING: "notStarted",
    State.IN_PROGRESS: "running",
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELED: "canceled",
}
_OUTER_CODES = {400: "InvalidRequest", 401: "401", 404: "NotFound", 429: "429", 503: "ServiceUnavailable"}


class AzureProtocol(WireProtocol):
    """Speaks as a resource's endpoint does, under `/azure`."""

    prefix: ClassVar[str] = "/azure"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /documentintelligence/documentModels/{model}:analyze": Operation.SUBMIT,
        "GET /documentintelligence/documentModels/{model}/analyzeResults/{job_id}": Operation.QUERY,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key
        self._formats: dict[str, str] = {}
        """The form of the content that was asked for, by the job's id."""

    def authorize(self, request: Request) -> None:
        """Compare the subscription key with the key."""
        given = request.headers.get("ocp-apim-subscription-key", "")
        if not hmac.compare_digest(given.encode(), self._key.encode()):
            raise RequestRefused(401, "401", "Access denied: the subscription key is missing or wrong.")

    async def read_upload(self, request: Request) -> Upload:
        """The `urlSource` of the body; the version and the string index type are checked."""
        query = request.query_params
        if query.get("api-version") != _VERSION:
            raise RequestRefused(404, "NotSupportedApiVersion", f"api-version must be {_VERSION}")
        if query.get("stringIndexType") != "unicodeCodePoint":
            raise RequestRefused(400, "InvalidParameter", "the sandbox counts in unicodeCodePoint only")
        if query.get("outputContentFormat", "text") not in _BREAK:
            raise RequestRefused(400, "InvalidParameter", "outputContentFormat is text or markdown")
        url = (await read_json(request)).get("urlSource")
        if not isinstance(url, str) or not url:
            raise RequestRefused(400, "InvalidParameter", "the body has no urlSource")
        return await fetch_upload(url, model=str(request.path_params["model"]))

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """No body; the place of the operation is in a header."""
        self._formats[snapshot.job_id] = request.query_params.get("outputContentFormat", "text")
        path = f"documentModels/{snapshot.model}/analyzeResults/{snapshot.job_id}?api-version={_VERSION}"
        location = f"{self.served_at(request)}/documentintelligence/{path}"
        return Reply(status=202, headers={"operation-location": location, "retry-after": "2"})

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The status, and then the result or the error."""
        at = snapshot.created_at.isoformat()
        body: dict[str, object] = {
            "status": snapshot.status_word or _STATUS_WORDS[snapshot.state],
            "createdDateTime": at,
            "lastUpdatedDateTime": at,
        }
        if snapshot.recognition is not None:
            content_format = self._formats.get(snapshot.job_id, "text")
            body["analyzeResult"] = _result(snapshot.model, snapshot.recognition, content_format)
        if snapshot.failure is not None:
            body["error"] = _error("InvalidRequest", snapshot.failure.code, snapshot.failure.message)
        return Reply(body=body)

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error envelope, with an inner error."""
        outer = _OUTER_CODES.get(refusal.status, "InternalServerError")
        return Reply(status=refusal.status, body={"error": _error(outer, refusal.code, str(refusal))})


def _error(outer: str, inner: str, message: str) -> dict[str, object]:
    error: dict[str, object] = {"code": outer, "message": message}
    if inner != outer:
        error["innererror"] = {"code": inner, "message": message}
    return error


def _result(model: str, recognition: Recognition, content_format: str) -> dict[str, object]:
    content = ""
    pages: list[object] = []
    paragraphs: list[object] = []
    for number, page in enumerate(recognition.pages, start=1):
        content += _BREAK[content_format] if pages else ""
        offset = len(content)
        for block in page.blocks:
            content += "\n\n" if len(content) > offset else ""
            corners = [block.left, block.top, block.right, block.top]
            polygon = [*corners, block.right, block.bottom, block.left, block.bottom]
            paragraphs.append(
                {
                    "content": block.text,
                    "boundingRegions": [{"pageNumber": number, "polygon": polygon}],
                    "spans": [{"offset": len(content), "length": len(block.text)}],
                }
            )
            content += block.text
        pages.append(
            {
                "pageNumber": number,
                "width": page.width,
                "height": page.height,
                "unit": "pixel",
                "spans": [{"offset": offset, "length": len(content) - offset}],
            }
        )
    return {
        "apiVersion": _VERSION,
        "modelId": model,
        "stringIndexType": "unicodeCodePoint",
        "contentFormat": content_format,
        "content": content,
        "pages": pages,
        "paragraphs": paragraphs,
    }
