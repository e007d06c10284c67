"""LlamaParse, version 2.

Read from run-llama/llama-cloud-py at 2df80fae and developers.llamaindex.ai; no live calls were made. Documents come
by URL alone.
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
from coatcheck_sandbox.recognize import RecognizedPage

__all__ = ["LlamaParseProtocol"]

_TIERS = ("fast", "cost_effective", "agentic", "agentic_plus")
_STATUS_WORDS = {
    State.WAITING: "PENDING",
    State.IN_PROGRESS: "RUNNING",
    State.SUCCEEDED: "COMPLETED",
    State.FAILED: "FAILED",
    State.CANCELED: "CANCELLED",
}


class LlamaParseProtocol(WireProtocol):
    """Speaks as `https://api.cloud.llamaindex.ai` does, under `/llamaparse`."""

    prefix: ClassVar[str] = "/llamaparse"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /api/v2/parse": Operation.SUBMIT,
        "GET /api/v2/parse/{job_id}": Operation.QUERY,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key

    def operation_of(self, request: Request, routed: Operation) -> Operation:
        """A query that expands something fetches the result."""
        return Operation.RESULT if "expand" in request.query_params else routed

    def authorize(self, request: Request) -> None:
        """Compare the bearer token with the key."""
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            raise RequestRefused(401, "unauthorized", "the API key is missing or wrong")

    async def read_upload(self, request: Request) -> Upload:
        """The document at `source_url`; `tier` and `version` have to be there, too."""
        body = await read_json(request)
        tier, url = body.get("tier"), body.get("source_url")
        if tier not in _TIERS or not isinstance(body.get("version"), str):
            raise RequestRefused(422, "invalid", f"tier is one of {', '.join(_TIERS)}, and version a text")
        if not isinstance(url, str):
            raise RequestRefused(422, "invalid", "the sandbox takes documents by source_url")
        return await fetch_upload(url, model=str(tier))

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The job."""
        return Reply(body=_job(snapshot))

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The job, without any content."""
        return Reply(body={"job": _job(snapshot)})

    def render_result(self, snapshot: Snapshot, request: Request) -> Reply:
        """The job, with the content that `expand` asks for, as far as there is any; the tier `fast` has text alone."""
        body: dict[str, object] = {"job": _job(snapshot)}
        for name in request.query_params["expand"].split(","):
            if name not in _CONTENTS:
                raise RequestRefused(422, "invalid", f"the sandbox cannot expand {name!r}")
            if snapshot.recognition is not None and (snapshot.model != "fast" or name == "text"):
                pages = enumerate(snapshot.recognition.pages, start=1)
                body[name] = {"pages": [_CONTENTS[name](number, page) for number, page in pages]}
        return Reply(body=body)

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The reason, in `detail`."""
        return Reply(status=refusal.status, body={"detail": str(refusal)})


def _job(snapshot: Snapshot) -> dict[str, object]:
    return {
        "id": snapshot.job_id,
        "project_id": "sandbox",
        "status": snapshot.status_word or _STATUS_WORDS[snapshot.state],
        "error_message": None if snapshot.failure is None else snapshot.failure.message,
        "tier": snapshot.model,
        "created_at": snapshot.created_at.isoformat(),
    }


def _markdown(number: int, page: RecognizedPage) -> dict[str, object]:
    return {"page_number": number, "markdown": page.text, "success": True}


def _text(number: int, page: RecognizedPage) -> dict[str, object]:
    return {"page_number": number, "text": page.text}


def _items(number: int, page: RecognizedPage) -> dict[str, object]:
    items = [
        {
            "type": "text",
            "value": block.text,
            "md": block.text,
            "bbox": [
                {
                    "x": block.left,
                    "y": block.top,
                    "w": block.right - block.left,
                    "h": block.bottom - block.top,
                }
            ],
        }
        for block in page.blocks
    ]
    size = {"page_width": page.width, "page_height": page.height}
    return {"page_number": number, **size, "items": items, "success": True}


_CONTENTS = {"markdown": _markdown, "text": _text, "items": _items}
