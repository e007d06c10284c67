"""Volcengine Ark: videos by Seedance.

Read from volcengine/volcengine-python-sdk at b5be43b5, the adapter of agents-flex and the provider's page on queries;
no live calls were made. Codes of refusals are the sandbox's choice. The provider refuses to cancel a job that runs, and
deletes the record of one that has ended; the sandbox cancels the one and keeps the other. It never calls back.
"""

import hmac
import re
from collections.abc import Mapping
from typing import ClassVar

from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.filming import film_upload, order_of
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json

__all__ = ["VolcengineVideoProtocol"]

_STATUS_WORDS = {
    State.WAITING: "queued",
    State.IN_PROGRESS: "running",
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELED: "cancelled",
}
_TYPES = ("text", "image_url", "video_url", "audio_url", "draft_task")


class VolcengineVideoProtocol(WireProtocol):
    """Speaks as `https://ark.cn-beijing.volces.com/api/v3` does, under `/volcengine-video`."""

    prefix: ClassVar[str] = "/volcengine-video"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /contents/generations/tasks": Operation.SUBMIT,
        "GET /contents/generations/tasks/{job_id}": Operation.QUERY,
        "DELETE /contents/generations/tasks/{job_id}": Operation.CANCEL,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key

    def authorize(self, request: Request) -> None:
        """Compare the bearer token with the key."""
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            raise RequestRefused(401, "AuthenticationError", "the API key is missing or wrong")

    async def read_upload(self, request: Request) -> Upload:
        """The order that `content` and the choices beside it make."""
        body = await read_json(request)
        model, content = body.get("model"), body.get("content")
        if not isinstance(model, str) or not model:
            raise RequestRefused(400, "MissingParameter", "model is missing")
        if not isinstance(content, list) or not content:
            raise RequestRefused(400, "MissingParameter", "content is missing")
        prompts = []
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else None
            if kind not in _TYPES or kind not in part:
                raise RequestRefused(400, "InvalidParameter", f"content has a part of type {kind!r}")
            if kind == "text":
                prompts.append(str(part["text"]))
        width, height = _size(body.get("resolution"), body.get("ratio"))
        order = order_of(
            " ".join(prompts),
            seconds=body.get("duration"),
            width=width,
            height=height,
            fps=body.get("fps"),
            seed=body.get("seed"),
        )
        return film_upload(order, model=model)

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The id alone."""
        return Reply(body={"id": snapshot.job_id})

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The status, and then the URL of the video or the error."""
        at = int(snapshot.created_at.timestamp())
        body: dict[str, object] = {
            "id": snapshot.job_id,
            "model": snapshot.model,
            "status": snapshot.status_word or _STATUS_WORDS[snapshot.state],
            "error": None,
            "created_at": at,
            "updated_at": at,
        }
        if snapshot.film is not None:
            body["content"] = {"video_url": self.film_url(snapshot, request)}
            body["usage"] = {"completion_tokens": 1, "total_tokens": 1}
            body["seed"] = snapshot.order.seed if snapshot.order is not None else 0
            body["duration"] = snapshot.film.seconds
            body["framespersecond"] = snapshot.film.fps
        if snapshot.failure is not None:
            body["error"] = {"code": snapshot.failure.code, "message": snapshot.failure.message}
        return Reply(body=body)

    def render_canceled(self, snapshot: Snapshot, request: Request) -> Reply:
        """Nothing to say."""
        return Reply(body={})

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error envelope; to cancel what has ended is to delete its record, which is no error."""
        if refusal.code == "task_ended":
            return Reply(body={})
        error = {"code": refusal.code, "message": str(refusal), "param": "", "type": "BadRequest"}
        return Reply(status=refusal.status, body={"error": error})


def _size(resolution: object, ratio: object) -> tuple[int | None, int | None]:
    """Width and height of a resolution such as ``720p``, which counts the shorter side."""
    lines = re.fullmatch(r"(\d{2,4})p", str(resolution))
    sides = re.fullmatch(r"(\d+):(\d+)", str(ratio or "16:9"))
    if lines is None or sides is None:
        return None, None
    short, across, down = int(lines[1]), int(sides[1]), int(sides[2])
    long = round(short * max(across, down) / (min(across, down) or 1))
    return (long, short) if across >= down else (short, long)
