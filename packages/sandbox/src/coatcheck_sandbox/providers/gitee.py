"""Gitee AI's document parsing.

Read from agents-flex's adapter (`agents-flex-ocr-gitee`: model, configuration, test) and its page
`docs/zh/ocr/gitee.md`; no live calls were made. Which models answer with which form of the text is the
sandbox's choice, so that a client meets all of them.
"""

import hmac
from collections.abc import Mapping
from typing import ClassVar

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol
from coatcheck_sandbox.recognize import Recognition

__all__ = ["GiteeProtocol"]

_STATUS_WORDS = {
    State.WAITING: "waiting",
    State.IN_PROGRESS: "in_progress",
    State.SUCCEEDED: "success",
    State.FAILED: "failure",
    State.CANCELED: "cancelled",
}


class GiteeProtocol(WireProtocol):
    """Speaks as `https://ai.gitee.com/v1` does, under `/gitee/v1`."""

    prefix: ClassVar[str] = "/gitee/v1"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /async/documents/parse": Operation.SUBMIT,
        "GET /task/{job_id}": Operation.QUERY,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key

    def authorize(self, request: Request) -> None:
        """Compare the bearer token with the key."""
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            raise RequestRefused(401, "invalid_api_key", "the API key is missing or wrong")

    async def read_upload(self, request: Request) -> Upload:
        """The parts `model` and `file` of a multipart form; other text parts are options and ignored."""
        try:
            async with request.form() as form:
                model, file = form.get("model"), form.get("file")
                if not isinstance(model, str) or not model:
                    raise RequestRefused(400, "missing_parameter", "the text part 'model' is missing")
                if not isinstance(file, UploadFile) or not file.filename:
                    raise RequestRefused(400, "missing_parameter", "the file part 'file' is missing")
                return Upload(name=file.filename, content=await file.read(), model=model)
        except (HTTPException, ValueError) as error:
            raise RequestRefused(400, "invalid_form", f"the form can't be read: {error}") from error

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The id and the first status."""
        return Reply(
            body={
                "task_id": snapshot.job_id,
                "status": _status_of(snapshot),
                "created_at": snapshot.created_at.isoformat(),
                "urls": {},
            }
        )

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The status; `output` is null until the job has succeeded, `error` is null until it has failed."""
        body: dict[str, object] = {
            "task_id": snapshot.job_id,
            "status": _status_of(snapshot),
            "created_at": snapshot.created_at.isoformat(),
            "output": None,
            "error": None,
        }
        if snapshot.recognition is not None:
            body["output"] = _output(snapshot.model, snapshot.recognition)
            body["price"] = 0.0
        if snapshot.failure is not None:
            error = {"code": snapshot.failure.code, "message": snapshot.failure.message}
            body["error"] = error
            body["error_code"], body["error_message"] = error["code"], error["message"]
        return Reply(body=body)

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error envelope."""
        error = {"code": refusal.code, "type": "invalid_request_error", "message": str(refusal)}
        return Reply(status=refusal.status, body={"error": error})


def _status_of(snapshot: Snapshot) -> str:
    return snapshot.status_word or _STATUS_WORDS[snapshot.state]


def _output(model: str, recognition: Recognition) -> dict[str, object]:
    if model.startswith(("MinerU", "PDF-Extract")):
        return {"markdown": recognition.text}
    if model.startswith("PaddleOCR"):
        return {"text": recognition.text}
    return {
        "segments": [{"index": index, "content": block} for index, block in enumerate(recognition.blocks)]
    }
