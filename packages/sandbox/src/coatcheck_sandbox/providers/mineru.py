"""MinerU's extraction of documents by URL, as single tasks and as batches.

Read in 2026 from agents-flex's adapter (`agents-flex-ocr-mineru` at 08a4f43d) and the pages mineru.net/doc/docs; no
live calls were made. A batch has one document here. The HTTP status 401 of a wrong token is the sandbox's choice.
"""

import hmac
import io
import json
import zipfile
from collections.abc import Mapping
from typing import ClassVar

from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.fetching import fetch_upload
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json
from coatcheck_sandbox.recognize import Recognition

__all__ = ["MinerUProtocol"]

_STATE_WORDS = {
    State.WAITING: "pending",
    State.IN_PROGRESS: "running",
    State.SUCCEEDED: "done",
    State.FAILED: "failed",
    State.CANCELED: "failed",
}
_CODES = {"task_not_found": -60012, "invalid_json": -500, "document_unreachable": -60008}
"""The provider's numbers for what the sandbox calls by a word."""


class MinerUProtocol(WireProtocol):
    """Speaks as `https://mineru.net` does, under `/mineru`."""

    prefix: ClassVar[str] = "/mineru"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /api/v4/extract/task": Operation.SUBMIT,
        "POST /api/v4/extract/task/batch": Operation.SUBMIT,
        "GET /api/v4/extract/task/{job_id}": Operation.QUERY,
        "GET /api/v4/extract-results/batch/{job_id}": Operation.QUERY,
        "GET /results/{job_id}/result.zip": Operation.RESULT,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key
        self._batches: set[str] = set()

    def authorize(self, request: Request) -> None:
        """Compare the bearer token with the key; links of results are presigned."""
        if request.url.path.startswith(f"{self.prefix}/results/"):
            return
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            raise RequestRefused(401, "A0202", "user authenticate failed")

    async def read_upload(self, request: Request) -> Upload:
        """The document of a task, or the one of a batch."""
        body = await read_json(request)
        file: object = body
        if _is_batch(request):
            files = body.get("files")
            file = files[0] if isinstance(files, list) and len(files) == 1 else None
        url = file.get("url") if isinstance(file, dict) else None
        if not isinstance(file, dict) or not isinstance(url, str) or not url:
            raise RequestRefused(200, "-500", "parameter error: url")
        if "callback" in body and not body.get("seed"):
            raise RequestRefused(200, "-500", "parameter error: seed")
        data_id = file.get("data_id")
        return await fetch_upload(
            url,
            model=str(body.get("model_version", "pipeline")),
            reference=data_id if isinstance(data_id, str) else None,
        )

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The envelope with the id of the task or batch."""
        if _is_batch(request):
            self._batches.add(snapshot.job_id)
            return _good({"batch_id": snapshot.job_id})
        return _good({"task_id": snapshot.job_id})

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The state, which a batch tells of each file."""
        batch = "/batch/" in request.url.path
        if batch is not (snapshot.job_id in self._batches):
            raise RequestRefused(200, "-60012", "task not found")
        state: dict[str, object] = {
            "data_id": snapshot.reference or "",
            "state": snapshot.status_word or _STATE_WORDS[snapshot.state],
            "err_msg": "",
        }
        if snapshot.state is State.IN_PROGRESS:
            state["extract_progress"] = {
                "extracted_pages": 0,
                "total_pages": 1,
                "start_time": f"{snapshot.created_at:%Y-%m-%d %H:%M:%S}",
            }
        if snapshot.recognition is not None:
            state["full_zip_url"] = f"{self.served_at(request)}/results/{snapshot.job_id}/result.zip"
        if snapshot.failure is not None:
            state["err_code"] = _code_of(snapshot.failure.code)
            state["err_msg"] = snapshot.failure.message
        if batch:
            file = {"file_name": snapshot.name, **state}
            return _good({"batch_id": snapshot.job_id, "extract_result": [file]})
        return _good({"task_id": snapshot.job_id, **state})

    def render_result(self, snapshot: Snapshot, request: Request) -> Reply:
        """The archive."""
        if snapshot.recognition is None:
            raise RequestRefused(404, "task_not_found", "there is no result yet")
        return Reply(body=_archive(snapshot.recognition), media_type="application/zip")

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The gateway's envelope for a bad token, the service's for all else, which says so in HTTP 200."""
        if refusal.code.startswith("A0"):
            body = {"success": False, "msgCode": refusal.code, "msg": str(refusal)}
            return Reply(status=refusal.status, body=body)
        known = refusal.code in _CODES
        error = {"code": _code_of(refusal.code), "msg": str(refusal), "trace_id": "sandbox"}
        return Reply(status=200 if known else refusal.status, body=error)


def _is_batch(request: Request) -> bool:
    return request.url.path.endswith("/batch")


def _code_of(code: str) -> object:
    if code in _CODES:
        return _CODES[code]
    return int(code) if code.lstrip("-").isdecimal() else code


def _good(data: object) -> Reply:
    return Reply(body={"code": 0, "msg": "ok", "trace_id": "sandbox", "data": data})


def _archive(recognition: Recognition) -> bytes:
    blocks = [
        {
            "type": "text",
            "text": block.text,
            "page_idx": number,
            "bbox": [block.left, block.top, block.right, block.bottom],
        }
        for number, page in enumerate(recognition.pages)
        for block in page.blocks
    ]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("full.md", recognition.text)
        archive.writestr("sandbox_content_list.json", json.dumps(blocks, ensure_ascii=False))
    return packed.getvalue()
