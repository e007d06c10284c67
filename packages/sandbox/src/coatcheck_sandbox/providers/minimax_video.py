"""MiniMax's video generation, both versions of its API.

Read in 2026 from public clients (QuantumNous/new-api, vercel/ai at ed857f50, MiniMax-AI/MiniMax-MCP), the API reference
of platform.minimax.io, and docs.comfy.org (minimax-h3); no live calls were made. The types of errors in v2, what a
cancel is answered with, and the answer about a job that is not there are the sandbox's choice. No callbacks are sent,
and materials are not fetched: videos are made of the prompt.
"""

import hmac
from collections.abc import Mapping
from contextvars import ContextVar
from typing import ClassVar

from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.filming import film_upload, order_of
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json

__all__ = ["MinimaxVideoProtocol"]

_V1_WORDS = {
    State.WAITING: "Queueing",
    State.IN_PROGRESS: "Processing",
    State.SUCCEEDED: "Success",
    State.FAILED: "Fail",
    State.CANCELED: "Fail",
}
_V2_WORDS = {
    State.WAITING: "queued",
    State.IN_PROGRESS: "running",
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELED: "cancelled",
}
_V1_CODES = {"unauthorized": 1004, "invalid": 2013, "invalid_json": 2013, "task_not_found": 2013}
"""The provider's numbers for what the sandbox calls by a word."""
_V2_TYPES = {"unauthorized": "authentication_error", "task_not_found": "invalid_request_error"}
_FILE = "file-"
_asked: ContextVar[str] = ContextVar("minimax_version", default="v1")
"""Of which version the request is that is being answered."""


class MinimaxVideoProtocol(WireProtocol):
    """Speaks as `https://api.minimax.io` does, under `/minimax-video`."""

    prefix: ClassVar[str] = "/minimax-video"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /v1/video_generation": Operation.SUBMIT,
        "GET /v1/query/video_generation": Operation.QUERY,
        "GET /v1/files/retrieve": Operation.RESULT,
        "POST /v2/video_generation": Operation.SUBMIT,
        "GET /v2/query/video_generation/{job_id}": Operation.QUERY,
        "DELETE /v2/video_generation/{job_id}": Operation.CANCEL,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key
        self._v2_jobs: set[str] = set()

    def operation_of(self, request: Request, routed: Operation) -> Operation:
        """What its path says; the version is kept for whatever is answered."""
        _asked.set("v2" if request.url.path.startswith(f"{self.prefix}/v2/") else "v1")
        return routed

    def authorize(self, request: Request) -> None:
        """Compare the bearer token with the key."""
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            raise RequestRefused(401, "unauthorized", "login fail: the API key is missing or wrong")

    async def read_upload(self, request: Request) -> Upload:
        """What to film: the prompt, for as long as was asked for."""
        body = await read_json(request)
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise RequestRefused(400, "invalid", "invalid params, model is missing")
        prompt = body.get("prompt") if _asked.get() == "v1" else _text(body.get("content"))
        if _asked.get() == "v2" and not prompt:
            raise RequestRefused(400, "invalid", "invalid params, content needs one text")
        return film_upload(order_of(prompt, seconds=body.get("duration")), model=model)

    async def read_job_id(self, request: Request) -> str:
        """The job's id, which v1 has in the query, or in the name of its file."""
        query = request.query_params
        job_id = request.path_params.get("job_id") or query.get("task_id") or query.get("file_id", "")
        job_id = str(job_id).removeprefix(_FILE)
        if (job_id in self._v2_jobs) is not (_asked.get() == "v2"):
            self.authorize(request)
            raise RequestRefused(404, "task_not_found", "invalid task_id")
        return job_id

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The id; in v1 beside the envelope."""
        if _asked.get() == "v1":
            return _good({"task_id": snapshot.job_id})
        self._v2_jobs.add(snapshot.job_id)
        return Reply(body={"task_id": snapshot.job_id})

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The status; with the id of the file in v1, or the video itself in v2."""
        if _asked.get() == "v1":
            return _v1_job(snapshot)
        task: dict[str, object] = {
            "id": snapshot.job_id,
            "model": snapshot.model,
            "status": snapshot.status_word or _V2_WORDS[snapshot.state],
            "content": None,
            "error": None,
        }
        if snapshot.film is not None:
            task["content"] = {"url": self.film_url(snapshot, request)}
            task["usage"] = {"duration": snapshot.film.seconds}
        if snapshot.failure is not None:
            task["error"] = {"code": snapshot.failure.code, "message": snapshot.failure.message}
        return Reply(body={"task": task})

    def render_result(self, snapshot: Snapshot, request: Request) -> Reply:
        """The file of v1, with its URL."""
        if snapshot.film is None:
            raise RequestRefused(404, "invalid", "invalid params, no such file")
        file = {
            "file_id": f"{_FILE}{snapshot.job_id}",
            "bytes": len(snapshot.film.content),
            "filename": "output.mp4",
            "purpose": "video_generation",
            "download_url": self.film_url(snapshot, request),
        }
        return _good({"file": file})

    def render_canceled(self, snapshot: Snapshot, request: Request) -> Reply:
        """The id."""
        return Reply(body={"task_id": snapshot.job_id})

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error in the version's form; in v2, to cancel a job that has ended is to delete it, which succeeds."""
        if refusal.code == "task_ended":
            return Reply(body={})
        message = "invalid task_id" if refusal.code == "task_not_found" else str(refusal)
        if _asked.get() == "v1":
            code: object = _V1_CODES.get(refusal.code, refusal.code)
            code = int(code) if isinstance(code, str) and code.isdecimal() else code
            status = 200 if isinstance(code, int) else refusal.status
            return Reply(status=status, body={"base_resp": {"status_code": code, "status_msg": message}})
        error = {
            "type": _V2_TYPES.get(refusal.code, "bad_request_error"),
            "message": message,
            "http_code": str(refusal.status),
        }
        return Reply(status=refusal.status, body={"type": "error", "error": error, "request_id": "sandbox"})


def _text(content: object) -> str:
    texts = (
        [each.get("text") for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    )
    return next((each for each in texts if isinstance(each, str)), "")


def _good(body: dict[str, object]) -> Reply:
    return Reply(body={**body, "base_resp": {"status_code": 0, "status_msg": "success"}})


def _v1_job(snapshot: Snapshot) -> Reply:
    body: dict[str, object] = {
        "task_id": snapshot.job_id,
        "status": snapshot.status_word or _V1_WORDS[snapshot.state],
        "file_id": "",
    }
    if snapshot.film is not None:
        body["file_id"] = f"{_FILE}{snapshot.job_id}"
        body["video_width"], body["video_height"] = snapshot.film.width, snapshot.film.height
    reply = _good(body)
    if snapshot.failure is not None:
        code = int(snapshot.failure.code) if snapshot.failure.code.isdecimal() else snapshot.failure.code
        failed = {"status_code": code, "status_msg": snapshot.failure.message}
        return Reply(body={**body, "base_resp": failed})
    return reply
