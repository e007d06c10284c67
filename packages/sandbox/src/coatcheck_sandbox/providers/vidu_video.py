"""Vidu.

Read from platform.vidu.com, shengshu-ai/vidu-mcp and QuantumNous/new-api (`relay/channel/task/vidu`); no live calls
were made. Codes and reasons of refusals are the sandbox's choice, and so is the state of a cancelled job, which is not
documented. The provider cancels no job that is scheduled; the sandbox does. It never calls back.
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

__all__ = ["ViduVideoProtocol"]

_STATE_WORDS = {
    State.WAITING: "queueing",
    State.IN_PROGRESS: "processing",
    State.SUCCEEDED: "success",
    State.FAILED: "failed",
    State.CANCELED: "failed",
}
_IMAGES = {
    "text2video": range(1),
    "img2video": range(1, 2),
    "start-end2video": range(2, 3),
    "reference2video": range(1, 8),
}
"""How many images an endpoint takes."""


class ViduVideoProtocol(WireProtocol):
    """Speaks as `https://api.vidu.com` does, under `/vidu-video`."""

    prefix: ClassVar[str] = "/vidu-video"
    routes: ClassVar[Mapping[str, Operation]] = {
        **{f"POST /ent/v2/{endpoint}": Operation.SUBMIT for endpoint in _IMAGES},
        "GET /ent/v2/tasks/{job_id}/creations": Operation.QUERY,
        "POST /ent/v2/tasks/{job_id}/cancel": Operation.CANCEL,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key

    def authorize(self, request: Request) -> None:
        """Compare the token with the key."""
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Token {self._key}".encode()):
            raise RequestRefused(401, "Unauthorized", "the API key is missing or wrong")

    async def read_upload(self, request: Request) -> Upload:
        """The order of a body; images are counted, and not fetched."""
        body = await read_json(request)
        endpoint = request.url.path.rpartition("/")[2]
        model, images = body.get("model"), body.get("images") or []
        if not isinstance(model, str) or not model:
            raise RequestRefused(400, "BadRequest", "model is missing")
        if not isinstance(images, list) or len(images) not in _IMAGES[endpoint]:
            raise RequestRefused(400, "BadRequest", f"{endpoint} does not take these images")
        lines = re.fullmatch(r"(\d{3,4})p", str(body.get("resolution")))
        height = int(lines[1]) if lines else None
        order = order_of(
            body.get("prompt"),
            seconds=body.get("duration"),
            width=None if height is None else round(height * 16 / 9),
            height=height,
            seed=body.get("seed"),
        )
        payload = body.get("payload")
        return film_upload(order, model=model, reference=None if payload is None else str(payload))

    async def read_job_id(self, request: Request) -> str:
        """The id in the path, which a cancel repeats in its body."""
        job_id = await super().read_job_id(request)
        if request.method == "POST" and (await read_json(request)).get("id") != job_id:
            raise RequestRefused(400, "BadRequest", "the body has not the id of the path")
        return job_id

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The id and the first state."""
        body = {
            "task_id": snapshot.job_id,
            "state": "created",
            "model": snapshot.model,
            "payload": snapshot.reference or "",
            "credits": 0,
            "created_at": snapshot.created_at.isoformat(),
        }
        return Reply(body=body)

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The state, and then the creations or a code."""
        body: dict[str, object] = {
            "id": snapshot.job_id,
            "state": snapshot.status_word or _STATE_WORDS[snapshot.state],
            "err_code": "",
            "credits": 0,
            "payload": snapshot.reference or "",
            "creations": [],
        }
        if snapshot.film is not None:
            url = self.film_url(snapshot, request)
            body["creations"] = [{"id": f"{snapshot.job_id}-1", "url": url, "cover_url": f"{url}?cover"}]
        if snapshot.state is State.CANCELED:
            body["err_code"] = "Canceled"
        if snapshot.failure is not None:
            body["err_code"] = snapshot.failure.code
        return Reply(body=body)

    def render_canceled(self, snapshot: Snapshot, request: Request) -> Reply:
        """Nothing to say."""
        return Reply(body={})

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error envelope; what has ended cannot be cancelled."""
        status, message = refusal.status, str(refusal)
        if refusal.code == "task_ended":
            status, message = 400, "task state is success, can not cancel"
        metadata = {"trace_id": "sandbox"}
        return Reply(
            status=status,
            body={"code": status, "reason": refusal.code, "message": message, "metadata": metadata},
        )
