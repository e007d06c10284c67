"""Mistral OCR through the batch API.

Read from the official client (mistralai/client-python at 05629d23), and for the rows of results from langchain4j's; no
live calls were made. A document that cannot be read fails its row, in a job that is a success; other failures are the
job's. Jobs of the model `mistral-ocr-latest` have their rows in the answer, those of others in files only, so that a
client meets both: that is the sandbox's choice.
"""

import hmac
import json
from collections.abc import Mapping
from typing import ClassVar

from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.fetching import fetch_upload
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json
from coatcheck_sandbox.recognize import Recognition

__all__ = ["MistralProtocol"]

_STATUS_WORDS = {
    State.WAITING: "QUEUED",
    State.IN_PROGRESS: "RUNNING",
    State.SUCCEEDED: "SUCCESS",
    State.FAILED: "FAILED",
    State.CANCELED: "CANCELLED",
}
_OF_THE_ROW = frozenset({"document_unreachable", "document_unreadable"})
"""The codes of failures that are the row's, not the job's."""
_INLINE_MODEL = "mistral-ocr-latest"


class MistralProtocol(WireProtocol):
    """Speaks as `https://api.mistral.ai` does, under `/mistral`."""

    prefix: ClassVar[str] = "/mistral"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /v1/batch/jobs": Operation.SUBMIT,
        "GET /v1/batch/jobs/{job_id}": Operation.QUERY,
        "POST /v1/batch/jobs/{job_id}/cancel": Operation.CANCEL,
        "GET /v1/files/{file_id}/url": Operation.OTHER,
        "GET /signed/{job_id}": Operation.RESULT,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key

    def authorize(self, request: Request) -> None:
        """Compare the bearer token with the key; signed links bear their proof in themselves."""
        if request.url.path.startswith(f"{self.prefix}/signed/"):
            return
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            raise RequestRefused(401, "invalid_api_key", "Unauthorized")

    async def read_upload(self, request: Request) -> Upload:
        """The document of the one row, whose `custom_id` is kept as the job's reference."""
        body = await read_json(request)
        rows, model = body.get("requests"), body.get("model")
        if body.get("endpoint") != "/v1/ocr" or not isinstance(model, str):
            raise RequestRefused(422, "invalid_request", "the endpoint is not /v1/ocr, or there is no model")
        if not isinstance(rows, list) or len(rows) != 1 or not isinstance(rows[0], dict):
            raise RequestRefused(422, "invalid_request", "the sandbox takes one row in requests")
        custom_id, row = rows[0].get("custom_id"), rows[0].get("body")
        document = row.get("document") if isinstance(row, dict) else None
        kind = document.get("type") if isinstance(document, dict) else None
        if not isinstance(document, dict) or kind not in {"document_url", "image_url"}:
            raise RequestRefused(422, "invalid_request", "the row has no document of a kind that is known")
        return await fetch_upload(str(document.get(kind, "")), model=model, reference=str(custom_id))

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The job, which is queued."""
        return Reply(body=_job(snapshot))

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The job; its rows, if they are wanted."""
        job = _job(snapshot)
        if job["output_file"] is not None or job["error_file"] is not None:
            inline = request.query_params.get("inline") == "true" and snapshot.model == _INLINE_MODEL
            job["outputs"] = [_row(snapshot)] if inline else None
        return Reply(body=job)

    def render_result(self, snapshot: Snapshot, request: Request) -> Reply:
        """The file with the row, as JSONL."""
        line = json.dumps(_row(snapshot), ensure_ascii=False)
        return Reply(body=f"{line}\n".encode(), media_type="application/octet-stream")

    def render_canceled(self, snapshot: Snapshot, request: Request) -> Reply:
        """The job, which is cancelled at once."""
        return Reply(body=_job(snapshot))

    async def answer(self, request: Request) -> Reply:
        """A signed link to a file; its id tells which job it is of."""
        job_id = str(request.path_params["file_id"]).partition("-")[0]
        return Reply(body={"url": f"{self.served_at(request)}/signed/{job_id}"})

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error envelope, which has a list of details for what does not fit the schema."""
        if refusal.status == 422:  # noqa: PLR2004 - the status of what does not fit the schema
            return Reply(
                status=422, body={"detail": [{"loc": ["body"], "msg": str(refusal), "type": refusal.code}]}
            )
        body = {"object": "error", "message": str(refusal), "type": "invalid_request", "code": refusal.code}
        return Reply(status=refusal.status, body=body)


def _job(snapshot: Snapshot) -> dict[str, object]:
    failure = snapshot.failure
    row_failed = failure is not None and failure.code in _OF_THE_ROW
    state = State.SUCCEEDED if row_failed else snapshot.state
    done = snapshot.recognition is not None
    return {
        "id": snapshot.job_id,
        "object": "batch",
        "input_files": [],
        "endpoint": "/v1/ocr",
        "model": snapshot.model,
        "metadata": {},
        "errors": [] if failure is None or row_failed else [{"message": failure.message, "count": 1}],
        "status": snapshot.status_word or _STATUS_WORDS[state],
        "created_at": int(snapshot.created_at.timestamp()),
        "total_requests": 1,
        "completed_requests": int(done or row_failed),
        "succeeded_requests": int(done),
        "failed_requests": int(row_failed),
        "output_file": f"{snapshot.job_id}-output" if done else None,
        "error_file": f"{snapshot.job_id}-errors" if row_failed else None,
        "outputs": None,
    }


def _row(snapshot: Snapshot) -> dict[str, object]:
    row: dict[str, object] = {"custom_id": snapshot.reference, "response": None, "error": None}
    if snapshot.failure is not None:
        row["error"] = {"code": snapshot.failure.code, "message": snapshot.failure.message}
    elif snapshot.recognition is not None:
        row["response"] = {"status_code": 200, "body": _ocr(snapshot, snapshot.recognition)}
    return row


def _ocr(snapshot: Snapshot, recognition: Recognition) -> dict[str, object]:
    return {
        "model": snapshot.model,
        "pages": [
            {
                "index": index,
                "markdown": page.text,
                "images": [],
                "dimensions": {"dpi": 200, "width": int(page.width), "height": int(page.height)},
            }
            for index, page in enumerate(recognition.pages)
        ],
        "usage_info": {"pages_processed": len(recognition.pages), "doc_size_bytes": None},
    }
