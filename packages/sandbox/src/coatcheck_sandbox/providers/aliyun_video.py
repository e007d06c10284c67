"""Aliyun's DashScope: videos.

Read from dashscope/dashscope-sdk-python at c0d7a0b7, the adapter of agents-flex and the pages on asynchronous tasks of
help.aliyun.com/model-studio; no live calls were made. The codes of refusals beside `InvalidApiKey` are the sandbox's
choice. The provider cancels a task only while it is pending; the sandbox cancels one that runs, too.
"""

import hmac
import re
import uuid
from collections.abc import Mapping
from typing import ClassVar

from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.filming import film_upload, order_of
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json

__all__ = ["AliyunVideoProtocol"]

_STATUS_WORDS = {
    State.WAITING: "PENDING",
    State.IN_PROGRESS: "RUNNING",
    State.SUCCEEDED: "SUCCEEDED",
    State.FAILED: "FAILED",
    State.CANCELED: "CANCELED",
}


class AliyunVideoProtocol(WireProtocol):
    """Speaks as `https://dashscope.aliyuncs.com` does, under `/aliyun-video`."""

    prefix: ClassVar[str] = "/aliyun-video"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /api/v1/services/aigc/video-generation/video-synthesis": Operation.SUBMIT,
        "POST /api/v1/services/aigc/image2video/video-synthesis": Operation.SUBMIT,
        "GET /api/v1/tasks/{job_id}": Operation.QUERY,
        "POST /api/v1/tasks/{job_id}/cancel": Operation.CANCEL,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key

    def authorize(self, request: Request) -> None:
        """Compare the bearer token with the key."""
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            raise RequestRefused(401, "InvalidApiKey", "Invalid API-key provided.")

    async def read_upload(self, request: Request) -> Upload:
        """The order that `input` and `parameters` make; only asynchronous calls are taken."""
        if request.headers.get("x-dashscope-async") != "enable":
            raise RequestRefused(403, "AccessDenied", "current user api does not support synchronous calls")
        body = await read_json(request)
        model, inputs, parameters = body.get("model"), body.get("input"), body.get("parameters") or {}
        if not isinstance(model, str) or not model:
            raise RequestRefused(400, "InvalidParameter", "model is missing")
        if not isinstance(inputs, dict) or not inputs or not isinstance(parameters, dict):
            raise RequestRefused(400, "InvalidParameter", "input and parameters are objects")
        size = re.fullmatch(r"(\d+)\*(\d+)", str(parameters.get("size") or ""))
        order = order_of(
            inputs.get("prompt"),
            seconds=parameters.get("duration"),
            width=size[1] if size else None,
            height=size[2] if size else None,
            fps=parameters.get("fps"),
            seed=parameters.get("seed"),
        )
        return film_upload(order, model=model)

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The id and the first status."""
        return _answer({"task_id": snapshot.job_id, "task_status": "PENDING"})

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The status, and then the URL of the video or the error."""
        at = f"{snapshot.created_at:%Y-%m-%d %H:%M:%S.%f}"
        output: dict[str, object] = {
            "task_id": snapshot.job_id,
            "task_status": snapshot.status_word or _STATUS_WORDS[snapshot.state],
            "submit_time": at,
            "scheduled_time": at,
        }
        usage: dict[str, object] = {}
        if snapshot.film is not None:
            output["end_time"] = at
            output["video_url"] = self.film_url(snapshot, request)
            usage = {"video_count": 1, "video_duration": snapshot.film.seconds}
        if snapshot.failure is not None:
            output["code"], output["message"] = snapshot.failure.code, snapshot.failure.message
        return _answer(output, **({"usage": usage} if usage else {}))

    def render_canceled(self, snapshot: Snapshot, request: Request) -> Reply:
        """Nothing to say."""
        return Reply(body={"request_id": str(uuid.uuid4())})

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error envelope; a task that is not there is a good answer with a status of its own."""
        if refusal.code == "task_not_found":
            return _answer({"task_id": "", "task_status": "UNKNOWN"})
        code = "UnsupportedOperation" if refusal.code == "task_ended" else refusal.code
        status = 400 if refusal.code == "task_ended" else refusal.status
        body = {"request_id": str(uuid.uuid4()), "code": code, "message": str(refusal)}
        return Reply(status=status, body=body)


def _answer(output: dict[str, object], **beside: object) -> Reply:
    return Reply(body={"request_id": str(uuid.uuid4()), "output": output, **beside})
