"""Gitee AI: videos.

Read from agents-flex's adapter (`agents-flex-video-gitee` at 08a4f43d) and its page `docs/zh/video/gitee.md`; no live
calls were made. Which models answer with which form of the result is the sandbox's choice, so that a client meets all
of them, and so are the names of choices such as `duration`.
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
from coatcheck_sandbox.jobs import Film, Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json

__all__ = ["GiteeVideoProtocol"]

_STATUS_WORDS = {
    State.WAITING: "waiting",
    State.IN_PROGRESS: "in_progress",
    State.SUCCEEDED: "success",
    State.FAILED: "failure",
    State.CANCELED: "cancelled",
}
_NEEDED = {
    "generations": ("prompt",),
    "image-to-video": ("prompt", "image_url"),
    "audio-video-to-video": ("ref_audio", "ref_video"),
}


class GiteeVideoProtocol(WireProtocol):
    """Speaks as `https://ai.gitee.com/v1` does, under `/gitee-video`."""

    prefix: ClassVar[str] = "/gitee-video"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /async/videos/generations": Operation.SUBMIT,
        "POST /async/videos/image-to-video": Operation.SUBMIT,
        "POST /async/videos/image-video-to-video": Operation.SUBMIT,
        "POST /async/videos/audio-video-to-video": Operation.SUBMIT,
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
        """The order that a body makes, as the endpoint has it."""
        endpoint = request.url.path.rpartition("/")[2]
        if endpoint == "image-video-to-video":
            return await _read_form(request)
        body = await read_json(request)
        for name in ("model", *_NEEDED[endpoint]):
            if not isinstance(body.get(name), str) or not body[name]:
                raise RequestRefused(400, "missing_parameter", f"{name!r} is missing")
        order = order_of(body.get("prompt"), seconds=body.get("duration"), seed=body.get("seed"))
        return film_upload(order, model=str(body["model"]))

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The id and the first status."""
        return Reply(body={**_job(snapshot), "urls": {}})

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The status; `output` is null until the job has succeeded, `error` is null until it has failed."""
        body: dict[str, object] = {**_job(snapshot), "output": None, "error": None}
        if snapshot.film is not None:
            body["output"] = _output(snapshot.model, snapshot.film, self.film_url(snapshot, request))
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


async def _read_form(request: Request) -> Upload:
    """The order of a multipart form: the names of its files stand for a prompt."""
    try:
        async with request.form() as form:
            model, files = form.get("model"), [form.get(name) for name in ("ref_image", "drive_video")]
            if not isinstance(model, str) or not model:
                raise RequestRefused(400, "missing_parameter", "the text part 'model' is missing")
            named = [file.filename for file in files if isinstance(file, UploadFile) and file.filename]
            if len(named) != len(files):
                raise RequestRefused(400, "missing_parameter", "a file part is missing")
            return film_upload(order_of(" and ".join(named)), model=model)
    except (HTTPException, ValueError) as error:
        raise RequestRefused(400, "invalid_form", f"the form can't be read: {error}") from error


def _job(snapshot: Snapshot) -> dict[str, object]:
    return {
        "task_id": snapshot.job_id,
        "status": snapshot.status_word or _STATUS_WORDS[snapshot.state],
        "created_at": snapshot.created_at.isoformat(),
    }


def _output(model: str, film: Film, url: str) -> object:
    size = {"width": film.width, "height": film.height, "duration": film.seconds}
    if model.startswith("Hunyuan"):
        return url
    if model.startswith("LTX"):
        return [{"url": url}, {"url": url}]
    if model.startswith("Vidu"):
        return {"videos": [{"url": url, "cover_url": f"{url}?cover", **size}]}
    if model.startswith("Duix"):
        return {"file_url": url}
    return {"video_url": url, **size}
