"""Zhipu's video generation.

Read in 2026 from zai-org/z-ai-sdk-python at d8d898bb and 43e25738, and from docs.z.ai (api-code); no live calls were
made. The HTTP statuses of errors, 404 for a job that is not there, where a failed job says why, and that the
`request_id` of a refused request may be used again, are the sandbox's choice. Images are not fetched: videos are made
of the prompt.
"""

import hmac
import time
from collections.abc import Mapping
from typing import ClassVar

from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.filming import film_upload, order_of
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json
from coatcheck_sandbox.signed_tokens import read_jwt

__all__ = ["ZhipuVideoProtocol"]

_STATUS_WORDS = {
    State.WAITING: "PROCESSING",
    State.IN_PROGRESS: "PROCESSING",
    State.SUCCEEDED: "SUCCESS",
    State.FAILED: "FAIL",
    State.CANCELED: "FAIL",
}


class ZhipuVideoProtocol(WireProtocol):
    """Speaks as `https://open.bigmodel.cn/api/paas/v4` does, under `/zhipu-video`.

    It takes the key itself, or a token that was signed with the second half of `pair`, whose halves are id and secret.
    """

    prefix: ClassVar[str] = "/zhipu-video"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /videos/generations": Operation.SUBMIT,
        "GET /async-result/{job_id}": Operation.QUERY,
    }

    def __init__(self, *, key: str = "sandbox-key", pair: str = "sandbox-id.sandbox-secret") -> None:
        self._key = key
        self._id, _, self._secret = pair.partition(".")
        self._request_ids: set[str] = set()

    def authorize(self, request: Request) -> None:
        """Compare the bearer token with the key, or read it as a token that the client has signed."""
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if hmac.compare_digest(given.encode(), self._key.encode()):
            return
        found = read_jwt(given, self._secret)
        header, claims = found or ({}, {})
        ends = claims.get("exp")
        if (
            claims.get("api_key") != self._id
            or header.get("sign_type") != "SIGN"
            or not isinstance(ends, int)
        ):
            raise RequestRefused(401, "1002", "Invalid Authentication Token")
        if ends <= time.time() * 1000:
            raise RequestRefused(401, "1003", "Authentication Token expired")

    async def read_upload(self, request: Request) -> Upload:
        """What to film: the prompt, in the size and for as long as was asked for."""
        body = await read_json(request)
        if not isinstance(body.get("model"), str):
            raise RequestRefused(400, "1213", "the parameter model was not received")
        if not body.get("prompt") and not body.get("image_url"):
            raise RequestRefused(400, "1213", "the parameters prompt and image_url were not received")
        request_id = body.get("request_id")
        if request_id in self._request_ids:
            raise RequestRefused(400, "1231", f"You already have a request: {request_id}")
        width, _, height = str(body.get("size", "")).partition("x")
        order = order_of(
            body.get("prompt"), seconds=body.get("duration"), width=width, height=height, fps=body.get("fps")
        )
        reference = request_id if isinstance(request_id, str) else None
        return film_upload(order, model=str(body["model"]), reference=reference)

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The id, and that the job runs."""
        if snapshot.reference is not None:
            self._request_ids.add(snapshot.reference)
        return Reply(body=_told(snapshot))

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The status, with the video of a job that has succeeded."""
        body = _told(snapshot)
        if snapshot.film is not None:
            url = self.film_url(snapshot, request)
            body["video_result"] = [{"url": url, "cover_image_url": f"{url}?cover"}]
        if snapshot.failure is not None:
            body["error"] = {"code": snapshot.failure.code, "message": snapshot.failure.message}
        return Reply(body=body)

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error envelope."""
        code = "1210" if refusal.code == "invalid_json" else refusal.code
        return Reply(status=refusal.status, body={"error": {"code": code, "message": str(refusal)}})


def _told(snapshot: Snapshot) -> dict[str, object]:
    return {
        "id": snapshot.job_id,
        "model": snapshot.model,
        "request_id": snapshot.reference,
        "task_status": snapshot.status_word or _STATUS_WORDS[snapshot.state],
    }
