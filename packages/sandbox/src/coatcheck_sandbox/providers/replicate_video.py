"""Replicate.

Read in 2026 from replicate/replicate-python at 0110c2c5 and replicate.com/docs; no live calls were made. Any model,
version or deployment makes a video of the input's `prompt`; images are not fetched, and nobody is called back. What a
cancel of a prediction that has ended is answered with is not documented: it is refused here.
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

__all__ = ["ReplicateVideoProtocol"]

_STATUSES = {
    State.WAITING: "starting",
    State.IN_PROGRESS: "processing",
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELED: "canceled",
}
_TITLES = {401: "Unauthenticated", 404: "Not Found", 422: "Input validation failed", 429: "Too Many Requests"}


class ReplicateVideoProtocol(WireProtocol):
    """Speaks as `https://api.replicate.com` does, under `/replicate-video`."""

    prefix: ClassVar[str] = "/replicate-video"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /v1/predictions": Operation.SUBMIT,
        "POST /v1/models/{owner}/{name}/predictions": Operation.SUBMIT,
        "POST /v1/deployments/{owner}/{name}/predictions": Operation.SUBMIT,
        "GET /v1/predictions/{job_id}": Operation.QUERY,
        "POST /v1/predictions/{job_id}/cancel": Operation.CANCEL,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key

    def authorize(self, request: Request) -> None:
        """Compare the bearer token with the key."""
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            raise RequestRefused(401, "unauthenticated", "You did not pass a valid authentication token")

    async def read_upload(self, request: Request) -> Upload:
        """What to film: the prompt of the input; a path without a model needs a version."""
        body = await read_json(request)
        named = "/".join(request.path_params.values())
        model = named or body.get("version")
        if not isinstance(model, str) or not model:
            raise RequestRefused(422, "invalid", "version is required")
        wanted = body.get("input")
        if not isinstance(wanted, dict):
            raise RequestRefused(422, "invalid", "input is required, and must be an object")
        order = order_of(
            wanted.get("prompt"),
            seconds=wanted.get("duration"),
            width=wanted.get("width"),
            height=wanted.get("height"),
            fps=wanted.get("fps"),
            seed=wanted.get("seed"),
        )
        return film_upload(order, model=model)

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The prediction, which starts."""
        return Reply(status=201, body=self._prediction(snapshot, request))

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The prediction; `output` and `error` are null until there are some."""
        return Reply(body=self._prediction(snapshot, request))

    def render_canceled(self, snapshot: Snapshot, request: Request) -> Reply:
        """The prediction after it was cancelled."""
        return Reply(body=self._prediction(snapshot, request))

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The problem, as in RFC 7807."""
        title = _TITLES.get(refusal.status, "Error")
        return Reply(
            status=refusal.status,
            body={"title": title, "detail": str(refusal), "status": refusal.status},
            media_type="application/problem+json",
        )

    def _prediction(self, snapshot: Snapshot, request: Request) -> Mapping[str, object]:
        film = snapshot.film
        place = f"{self.served_at(request)}/v1/predictions/{snapshot.job_id}"
        return {
            "id": snapshot.job_id,
            "model": snapshot.model,
            "input": {"prompt": "" if snapshot.order is None else snapshot.order.prompt},
            "logs": "",
            "output": None if film is None else self.film_url(snapshot, request),
            "error": None if snapshot.failure is None else snapshot.failure.message,
            "status": snapshot.status_word or _STATUSES[snapshot.state],
            "created_at": snapshot.created_at.isoformat(),
            "urls": {"get": place, "cancel": f"{place}/cancel"},
            "metrics": {} if film is None else {"predict_time": film.seconds},
        }
