"""fal's queue.

Read in 2026 from fal-ai/fal at c6f0afaa and docs.fal.ai; no live calls were made. Any model makes a video of its
`prompt`; images are not fetched, and nobody is called back. What the status says after a cancel is not documented: here
the request is completed, with an error.
"""

import hmac
from collections.abc import Mapping
from typing import ClassVar

from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.filming import film_upload, order_of
from coatcheck_sandbox.jobs import Failure, Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json

__all__ = ["FalVideoProtocol"]

_STATUSES = {State.WAITING: "IN_QUEUE", State.IN_PROGRESS: "IN_PROGRESS"}
_DONE = "COMPLETED"
_CANCELED = Failure(code="client_cancelled", message="Request was cancelled by the client")
_TOO_LATE = "task_ended"


class FalVideoProtocol(WireProtocol):
    """Speaks as `https://queue.fal.run` does, under `/fal-video`."""

    prefix: ClassVar[str] = "/fal-video"
    routes: ClassVar[Mapping[str, Operation]] = {
        "GET /{owner}/{app}/requests/{job_id}/status": Operation.QUERY,
        "GET /{owner}/{app}/requests/{job_id}": Operation.RESULT,
        "PUT /{owner}/{app}/requests/{job_id}/cancel": Operation.CANCEL,
        "POST /{owner}/{app}": Operation.SUBMIT,
        "POST /{owner}/{app}/{subpath:path}": Operation.SUBMIT,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key

    def authorize(self, request: Request) -> None:
        """Compare the key."""
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Key {self._key}".encode()):
            raise RequestRefused(401, "unauthorized", "Cannot access application: authentication is required")

    async def read_upload(self, request: Request) -> Upload:
        """What to film: the prompt of the body, which is the model's input."""
        body = await read_json(request)
        prompt = body.get("prompt")
        if not isinstance(prompt, str) or not prompt:
            raise RequestRefused(422, "missing", "Field required: prompt")
        order = order_of(prompt, seconds=str(body.get("duration", "")).rstrip("s"), seed=body.get("seed"))
        return film_upload(order, model="/".join(request.path_params.values()))

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The id, the place in the queue, and where to go on."""
        body = {"request_id": snapshot.job_id, "queue_position": 0, **self._places(snapshot, request)}
        return Reply(body={"status": "IN_QUEUE", "gateway_request_id": snapshot.job_id, **body})

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The status: 202 while it goes on. A request that failed is completed, with an error."""
        word = snapshot.status_word or _STATUSES.get(snapshot.state, _DONE)
        body: dict[str, object] = {
            "status": word,
            "request_id": snapshot.job_id,
            **self._places(snapshot, request),
        }
        if snapshot.state is State.WAITING:
            body["queue_position"] = 0
        failure = _failure_of(snapshot)
        if failure is not None:
            body |= {"error": failure.message, "error_type": failure.code}
        return Reply(status=200 if word == _DONE else 202, body=body)

    def render_result(self, snapshot: Snapshot, request: Request) -> Reply:
        """The output of the model, which is the whole body."""
        failure = _failure_of(snapshot)
        if failure is not None:
            raise RequestRefused(422, failure.code, failure.message)
        film = snapshot.film
        if film is None:
            raise RequestRefused(400, "", "Request is still in progress")
        video = {
            "url": self.film_url(snapshot, request),
            "content_type": film.media_type,
            "file_name": f"{snapshot.job_id}.mp4",
            "file_size": len(film.content),
        }
        return Reply(body={"video": video, "seed": 0 if snapshot.order is None else snapshot.order.seed})

    def render_canceled(self, snapshot: Snapshot, request: Request) -> Reply:
        """That the cancel was taken."""
        return Reply(status=202, body={"status": "CANCELLATION_REQUESTED"})

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error: a text, or a list of problems with the input; its type is in a header, too."""
        if refusal.code == _TOO_LATE:
            return Reply(status=400, body={"status": "ALREADY_COMPLETED"})
        if refusal.code == "missing":
            problem = {"loc": ["body", "prompt"], "msg": str(refusal), "type": refusal.code}
            return Reply(status=refusal.status, body={"detail": [problem]})
        headers = {"x-fal-error-type": refusal.code} if refusal.status == 422 and refusal.code else {}  # noqa: PLR2004 - an error of the model
        return Reply(status=refusal.status, body={"detail": str(refusal)}, headers=headers)

    def _places(self, snapshot: Snapshot, request: Request) -> Mapping[str, str]:
        app = "/".join(snapshot.model.split("/")[:2])
        place = f"{self.served_at(request)}/{app}/requests/{snapshot.job_id}"
        return {"status_url": f"{place}/status", "response_url": place, "cancel_url": f"{place}/cancel"}


def _failure_of(snapshot: Snapshot) -> Failure | None:
    return _CANCELED if snapshot.state is State.CANCELED else snapshot.failure
