"""Reducto's asynchronous parsing.

Read from reductoai/reducto-python-sdk at eafd8e21 and docs.reducto.ai; no live calls were made. What a cancelled
job's status is is not documented: here it is "Failed", with a reason.
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

__all__ = ["ReductoProtocol"]

_STATUS_WORDS = {
    State.WAITING: "Pending",
    State.IN_PROGRESS: "InProgress",
    State.SUCCEEDED: "Completed",
    State.FAILED: "Failed",
    State.CANCELED: "Failed",
}


class ReductoProtocol(WireProtocol):
    """Speaks as `https://platform.reducto.ai` does, under `/reducto`.

    A result is behind a link if `settings.force_url_result` asks for that.
    """

    prefix: ClassVar[str] = "/reducto"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /parse_async": Operation.SUBMIT,
        "GET /job/{job_id}": Operation.QUERY,
        "POST /cancel/{job_id}": Operation.CANCEL,
        "GET /results/{job_id}": Operation.RESULT,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key
        self._linked: set[str] = set()
        """The jobs whose results are wanted behind links."""

    def authorize(self, request: Request) -> None:
        """Compare the bearer token with the key; the links to results are presigned and need none."""
        if request.url.path.startswith(f"{self.prefix}/results/"):
            return
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            raise RequestRefused(401, "AUTH_ERROR", "the API key is missing or wrong")

    async def read_upload(self, request: Request) -> Upload:
        """The document at `input`, a URL."""
        body = await read_json(request)
        url, settings = body.get("input"), body.get("settings", {})
        if not isinstance(url, str) or not isinstance(settings, dict):
            raise RequestRefused(422, "INVALID_CONFIG", "input is a URL, and settings are an object")
        request.state.linked = settings.get("force_url_result") is True
        return await fetch_upload(url)

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The id."""
        if request.state.linked:
            self._linked.add(snapshot.job_id)
        return Reply(body={"job_id": snapshot.job_id})

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The status, and then the result or the reason."""
        body: dict[str, object] = {
            "status": snapshot.status_word or _STATUS_WORDS[snapshot.state],
            "progress": 1.0 if snapshot.recognition is not None else 0.0,
            "reason": None,
            "result": None,
        }
        if snapshot.state is State.CANCELED:
            body["reason"] = "the job was cancelled"
        if snapshot.failure is not None:
            body["reason"] = snapshot.failure.message
        if snapshot.recognition is not None:
            body["result"] = {
                "job_id": snapshot.job_id,
                "duration": 1.0,
                "usage": {"num_pages": len(snapshot.recognition.pages), "credits": 0.0},
                "pdf_url": None,
                "result": self._result(snapshot.job_id, snapshot.recognition, request),
            }
        return Reply(body=body)

    def render_result(self, snapshot: Snapshot, request: Request) -> Reply:
        """The chunks that a link leads to."""
        if snapshot.recognition is None:
            raise RequestRefused(404, "NOT_FOUND", "there is no result")
        return Reply(body=_chunks(snapshot.recognition))

    def render_canceled(self, snapshot: Snapshot, request: Request) -> Reply:
        """Nothing to say."""
        return Reply(body={})

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error envelope, whose code is the HTTP status."""
        error = {"message": str(refusal), "type": refusal.code, "code": refusal.status}
        return Reply(status=refusal.status, body={"error": error})

    def _result(self, job_id: str, recognition: Recognition, request: Request) -> dict[str, object]:
        if job_id in self._linked:
            url = f"{self.served_at(request)}/results/{job_id}?signature=sandbox"
            return {"type": "url", "url": url, "result_id": job_id}
        return {"type": "full", "chunks": _chunks(recognition)}


def _chunks(recognition: Recognition) -> list[object]:
    """One chunk with the whole document, as without chunking."""
    blocks = [
        {
            "type": "Text",
            "content": block.text,
            "bbox": {
                "page": number,
                "original_page": number,
                "left": block.left / (page.width or 1),
                "top": block.top / (page.height or 1),
                "width": (block.right - block.left) / (page.width or 1),
                "height": (block.bottom - block.top) / (page.height or 1),
            },
        }
        for number, page in enumerate(recognition.pages, start=1)
        for block in page.blocks
    ]
    return [{"content": recognition.text, "embed": recognition.text, "blocks": blocks}]
