"""OpenAI's protocol for videos, as many servers speak it.

Read in 2026 from openai/openai-python at e43b4224; no live calls were made. A first frame is taken and not looked at:
videos are made of the prompt.
"""

import hmac
from collections.abc import Mapping
from typing import ClassVar

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.filming import film_upload, order_of
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json

__all__ = ["OpenAiVideoProtocol"]

_STATUS_WORDS = {
    State.WAITING: "queued",
    State.IN_PROGRESS: "in_progress",
    State.SUCCEEDED: "completed",
    State.FAILED: "failed",
}
_PROGRESS = {State.IN_PROGRESS: 50, State.SUCCEEDED: 100}
_LIFE_SECONDS = 3600


class OpenAiVideoProtocol(WireProtocol):
    """Speaks as a server with ``/v1/videos`` does, under `/openai-video`, which is the ``/v1``."""

    prefix: ClassVar[str] = "/openai-video"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /videos": Operation.SUBMIT,
        "GET /videos/{job_id}": Operation.QUERY,
        "GET /videos/{job_id}/content": Operation.RESULT,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key

    def authorize(self, request: Request) -> None:
        """Compare the bearer token with the key, also for the content."""
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            raise RequestRefused(401, "invalid_api_key", "the API key is missing or wrong")

    async def read_upload(self, request: Request) -> Upload:
        """What to film, of a body in JSON or a form with a first frame."""
        if request.headers.get("content-type", "").startswith("multipart/"):
            body = await _read_form(request)
        else:
            body = await read_json(request)
        if not body.get("prompt"):
            raise RequestRefused(400, "missing_required_parameter", "prompt is missing")
        width, _, height = str(body.get("size", "")).partition("x")
        order = order_of(body["prompt"], seconds=body.get("seconds"), width=width, height=height)
        return film_upload(order, model=str(body.get("model") or "sora-2"))

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The video object, which is queued."""
        return self.render_job(snapshot, request)

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The video object, and when to ask again while it goes on."""
        created_at = int(snapshot.created_at.timestamp())
        error = None
        if snapshot.failure is not None:
            error = {"code": snapshot.failure.code, "message": snapshot.failure.message}
        body: dict[str, object] = {
            "id": snapshot.job_id,
            "object": "video",
            "status": snapshot.status_word or _STATUS_WORDS[snapshot.state],
            "progress": _PROGRESS.get(snapshot.state, 0),
            "created_at": created_at,
            "model": snapshot.model,
            "error": error,
        }
        if snapshot.order is not None:
            body["seconds"] = f"{snapshot.order.seconds:g}"
            body["size"] = f"{snapshot.order.width}x{snapshot.order.height}"
        if snapshot.state is State.SUCCEEDED:
            body["expires_at"] = created_at + _LIFE_SECONDS
        goes_on = snapshot.state in {State.WAITING, State.IN_PROGRESS}
        return Reply(body=body, headers={"openai-poll-after-ms": "1000"} if goes_on else {})

    def render_result(self, snapshot: Snapshot, request: Request) -> Reply:
        """The content of the video."""
        if snapshot.film is None:
            raise RequestRefused(404, "not_found", "the video has no content, or none yet")
        return Reply(body=snapshot.film.content, media_type=snapshot.film.media_type)

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error envelope."""
        error = {
            "message": str(refusal),
            "type": "invalid_request_error",
            "param": None,
            "code": refusal.code,
        }
        return Reply(status=refusal.status, body={"error": error})


async def _read_form(request: Request) -> Mapping[str, object]:
    try:
        async with request.form() as form:
            frame = form.get("input_reference")
            if not isinstance(frame, UploadFile) or not await frame.read():
                raise RequestRefused(
                    400, "invalid_value", "the file part input_reference is missing or empty"
                )
            return {name: each for name, each in form.items() if isinstance(each, str)}
    except (HTTPException, ValueError) as error:
        raise RequestRefused(400, "invalid_form", f"the form can't be read: {error}") from error
