"""Runway's video generation.

Read in 2026 from runwayml/sdk-python at c604e0ea; no live calls were made. Materials are asked for where an endpoint
needs them, and not fetched: videos are made of the prompt.
"""

import hmac
from collections.abc import Mapping
from typing import ClassVar

from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.filming import film_upload, order_of
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json

__all__ = ["RunwayVideoProtocol"]

_STATUS_WORDS = {
    State.WAITING: "PENDING",
    State.IN_PROGRESS: "RUNNING",
    State.SUCCEEDED: "SUCCEEDED",
    State.FAILED: "FAILED",
    State.CANCELED: "CANCELLED",
}
_NEEDED = {
    "text_to_video": ("promptText",),
    "image_to_video": ("promptImage",),
    "video_to_video": ("videoUri", "promptVideo"),
}
"""Of these each endpoint needs one."""


class RunwayVideoProtocol(WireProtocol):
    """Speaks as `https://api.dev.runwayml.com` does, under `/runway-video`."""

    prefix: ClassVar[str] = "/runway-video"
    routes: ClassVar[Mapping[str, Operation]] = {
        **{f"POST /v1/{endpoint}": Operation.SUBMIT for endpoint in _NEEDED},
        "GET /v1/tasks/{job_id}": Operation.QUERY,
        "DELETE /v1/tasks/{job_id}": Operation.CANCEL,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key

    def authorize(self, request: Request) -> None:
        """Compare the bearer token with the key, and look for the version."""
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            raise RequestRefused(401, "unauthorized", "the API key is missing or wrong")
        if not request.headers.get("x-runway-version"):
            raise RequestRefused(400, "no_version", "the header X-Runway-Version is missing")

    async def read_upload(self, request: Request) -> Upload:
        """What to film: the prompt, in the size and for as long as was asked for."""
        body = await read_json(request)
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise RequestRefused(400, "invalid", "model is missing")
        needed = _NEEDED[request.url.path.rpartition("/")[2]]
        if not any(body.get(name) for name in needed):
            raise RequestRefused(400, "invalid", f"{' or '.join(needed)} is missing")
        width, _, height = str(body.get("ratio", "")).partition(":")
        order = order_of(
            body.get("promptText"),
            seconds=body.get("duration"),
            width=width,
            height=height,
            seed=body.get("seed"),
        )
        return film_upload(order, model=model)

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The id, and nothing else."""
        return Reply(body={"id": snapshot.job_id})

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The status, with the output of a job that has succeeded."""
        body: dict[str, object] = {
            "id": snapshot.job_id,
            "createdAt": snapshot.created_at.isoformat(),
            "status": snapshot.status_word or _STATUS_WORDS[snapshot.state],
        }
        if snapshot.state is State.IN_PROGRESS:
            body["progress"] = 0.5
        if snapshot.film is not None:
            body["output"] = [self.film_url(snapshot, request)]
        if snapshot.failure is not None:
            body["failure"], body["failureCode"] = snapshot.failure.message, snapshot.failure.code
        return Reply(body=body)

    def render_canceled(self, snapshot: Snapshot, request: Request) -> Reply:
        """Nothing."""
        return Reply(status=204)

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error, a text. To cancel a job that has ended is to delete it, which succeeds."""
        if refusal.code == "task_ended":
            return Reply(status=204)
        return Reply(status=refusal.status, body={"error": str(refusal)})
