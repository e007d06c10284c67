"""OpenRouter's videos.

Read in 2026 from OpenRouterTeam/docs at 192ba148 and OpenRouterTeam/skills at 1c6d7ef7; no live calls were made. Any
model makes a video of the prompt; images are not fetched, and nobody is called back. Content is served as it is
documented: to whoever has the key.
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

__all__ = ["OpenRouterVideoProtocol"]

_STATUSES = {
    State.WAITING: "pending",
    State.IN_PROGRESS: "in_progress",
    State.SUCCEEDED: "completed",
    State.FAILED: "failed",
    State.CANCELED: "cancelled",
}
_HEIGHTS = {"480p": 480, "720p": 720, "1080p": 1080}


class OpenRouterVideoProtocol(WireProtocol):
    """Speaks as `https://openrouter.ai/api/v1` does, under `/openrouter-video`."""

    prefix: ClassVar[str] = "/openrouter-video"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /videos": Operation.SUBMIT,
        "GET /videos/{job_id}": Operation.QUERY,
        "GET /videos/{job_id}/content": Operation.RESULT,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key

    def authorize(self, request: Request) -> None:
        """Compare the bearer token with the key."""
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            raise RequestRefused(401, "401", "No auth credentials found")

    async def read_upload(self, request: Request) -> Upload:
        """What to film: the prompt, in the size that was asked for."""
        body = await read_json(request)
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise RequestRefused(400, "400", "model is required")
        width, _, height = str(body.get("size", "")).partition("x")
        tall = _HEIGHTS.get(str(body.get("resolution")))
        order = order_of(
            body.get("prompt"),
            seconds=body.get("duration"),
            width=width if tall is None else tall * 16 // 9,
            height=height if tall is None else tall,
            seed=body.get("seed"),
        )
        return film_upload(order, model=model)

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The id and where to ask."""
        return Reply(status=202, body=self._job(snapshot))

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The job, with what there is of it."""
        body: dict[str, object] = {**self._job(snapshot), "generation_id": f"gen-{snapshot.job_id}"}
        if snapshot.film is not None:
            place = f"{self.served_at(request)}/videos/{snapshot.job_id}"
            body |= {
                "unsigned_urls": [f"{place}/content?index=0"],
                "usage": {"cost": 0.25, "is_byok": False},
            }
        if snapshot.failure is not None:
            body["error"] = snapshot.failure.message
        return Reply(body=body)

    def render_result(self, snapshot: Snapshot, request: Request) -> Reply:
        """The video itself."""
        film = snapshot.film
        if film is None or request.query_params.get("index", "0") != "0":
            raise RequestRefused(404, "404", "there is no such content")
        return Reply(body=film.content, media_type=film.media_type)

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error, whose code is the HTTP status."""
        return Reply(status=refusal.status, body={"error": {"code": refusal.status, "message": str(refusal)}})

    def _job(self, snapshot: Snapshot) -> Mapping[str, object]:
        return {
            "id": snapshot.job_id,
            "polling_url": f"{self.prefix}/videos/{snapshot.job_id}",
            "status": snapshot.status_word or _STATUSES[snapshot.state],
        }
