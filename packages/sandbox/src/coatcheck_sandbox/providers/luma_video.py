"""Luma's Dream Machine.

Read in 2026 from lumalabs/lumaai-python at c00ac171; no live calls were made. Images are not fetched: videos are made
of the prompt. Nobody is called back.
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

__all__ = ["LumaVideoProtocol"]

_STATES = {
    State.WAITING: "queued",
    State.IN_PROGRESS: "dreaming",
    State.SUCCEEDED: "completed",
    State.FAILED: "failed",
}
_HEIGHTS = {"540p": 540, "720p": 720, "1080p": 1080, "4k": 2160}


class LumaVideoProtocol(WireProtocol):
    """Speaks as `https://api.lumalabs.ai/dream-machine/v1` does, under `/luma-video`."""

    prefix: ClassVar[str] = "/luma-video"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /generations/video": Operation.SUBMIT,
        "GET /generations/{job_id}": Operation.QUERY,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key

    def authorize(self, request: Request) -> None:
        """Compare the bearer token with the key."""
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            raise RequestRefused(401, "unauthorized", "the API key is missing or wrong")

    async def read_upload(self, request: Request) -> Upload:
        """What to film: the prompt, as high and for as long as was asked for."""
        body = await read_json(request)
        model = body.get("model")
        if not isinstance(model, str) or not model:
            raise RequestRefused(400, "invalid", "model is missing")
        duration = str(body.get("duration", "5s"))
        if not duration.endswith("s"):
            raise RequestRefused(400, "invalid", f"{duration!r} is no duration such as 5s")
        height = _HEIGHTS.get(str(body.get("resolution")))
        width = None if height is None else height * 16 // 9
        order = order_of(body.get("prompt"), seconds=duration[:-1], width=width, height=height)
        return film_upload(order, model=model)

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The generation, which waits."""
        return Reply(status=201, body=self._generation(snapshot, request))

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The generation; `assets` and `failure_reason` are null until there are some."""
        return Reply(body=self._generation(snapshot, request))

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error, a text."""
        return Reply(status=refusal.status, body={"detail": str(refusal)})

    def _generation(self, snapshot: Snapshot, request: Request) -> Mapping[str, object]:
        film = snapshot.film
        return {
            "id": snapshot.job_id,
            "generation_type": "video",
            "state": snapshot.status_word or _STATES[snapshot.state],
            "failure_reason": None if snapshot.failure is None else snapshot.failure.message,
            "created_at": snapshot.created_at.isoformat(),
            "assets": None if film is None else {"video": self.film_url(snapshot, request)},
            "model": snapshot.model,
        }
