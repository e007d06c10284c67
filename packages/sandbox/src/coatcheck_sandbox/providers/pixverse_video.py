"""PixVerse's video generation from text.

Read in 2026 from docs.platform.pixverse.ai and public clients; no live calls were made. That a trace id of a query
must be new, and which code says so, are the sandbox's choice. No webhooks are sent.
"""

import hmac
from collections.abc import Mapping
from typing import ClassVar
from uuid import UUID

from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.filming import film_upload, order_of
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json

__all__ = ["PixverseVideoProtocol"]

_STATUS_NUMBERS = {
    State.WAITING: 5,
    State.IN_PROGRESS: 5,
    State.SUCCEEDED: 1,
    State.FAILED: 8,
    State.CANCELED: 6,
}
_MODERATED = 7
_CODES = {"task_not_found": 500008, "invalid_json": 400017, "idempotency_mismatch": 400017}
"""The provider's numbers for what the sandbox calls by a word."""
_HEIGHTS = {"360p": 90, "540p": 135, "720p": 180, "1080p": 270}
"""Small, for quick answers."""


class PixverseVideoProtocol(WireProtocol):
    """Speaks as `https://app-api.pixverse.ai` does, under `/pixverse-video`."""

    prefix: ClassVar[str] = "/pixverse-video"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /openapi/v2/video/text/generate": Operation.SUBMIT,
        "GET /openapi/v2/video/result/{job_id}": Operation.QUERY,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key
        self._jobs: dict[str, str] = {}
        """The ids of jobs by their numbers, which are what clients see."""
        self._asked: set[str] = set()

    def authorize(self, request: Request) -> None:
        """Compare the key, and look at the trace id: a query has a new one."""
        given = request.headers.get("api-key", "")
        if not given:
            raise RequestRefused(200, "10004", "API key is empty")
        if not hmac.compare_digest(given.encode(), self._key.encode()):
            raise RequestRefused(200, "400012", "Invalid account")
        trace_id = _trace_id(request)
        if request.method == "GET":
            if trace_id in self._asked:
                raise RequestRefused(200, "400017", "Ai-trace-id was used before")
            self._asked.add(trace_id)

    async def read_upload(self, request: Request) -> Upload:
        """What to film: the prompt, in the quality and for as long as was asked for."""
        body = await read_json(request)
        for name in ("prompt", "model", "aspect_ratio"):
            if not body.get(name):
                raise RequestRefused(200, "400011", f"Empty parameter: {name}")
        height = _HEIGHTS.get(str(body.get("quality")), _HEIGHTS["720p"])
        seconds, seed = body.get("duration"), body.get("seed")
        order = order_of(body["prompt"], seconds=seconds, width=height * 16 // 9, height=height, seed=seed)
        return film_upload(order, model=str(body["model"]), token=_trace_id(request))

    async def read_job_id(self, request: Request) -> str:
        """The job's id, by its number."""
        return self._jobs.get(str(request.path_params["job_id"]), "")

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The job's number."""
        self._jobs[str(_number_of(snapshot))] = snapshot.job_id
        return _good({"video_id": _number_of(snapshot), "credits": 10})

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The status, a number, with the video of a job that has succeeded."""
        status: object = _STATUS_NUMBERS[snapshot.state]
        if snapshot.failure is not None and snapshot.failure.code == "moderation":
            status = _MODERATED
        found: dict[str, object] = {
            "id": _number_of(snapshot),
            "status": snapshot.status_word or status,
            "url": "",
        }
        if snapshot.film is not None:
            found["url"] = self.film_url(snapshot, request)
            found["outputWidth"], found["outputHeight"] = snapshot.film.width, snapshot.film.height
        if snapshot.order is not None:
            found["seed"] = snapshot.order.seed
        return _good(found)

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The envelope with a code, in HTTP 200; a fault has the status that it names."""
        code: object = _CODES.get(refusal.code, refusal.code)
        code = int(code) if isinstance(code, str) and code.isdecimal() else code
        status = 200 if isinstance(code, int) else refusal.status
        return Reply(status=status, body={"ErrCode": code, "ErrMsg": str(refusal), "Resp": None})


def _trace_id(request: Request) -> str:
    given = request.headers.get("ai-trace-id", "")
    try:
        return str(UUID(given))
    except ValueError as error:
        raise RequestRefused(200, "400011", "Empty parameter: Ai-trace-id, a UUID") from error


def _number_of(snapshot: Snapshot) -> int:
    return int(snapshot.job_id[:12], 16)


def _good(found: dict[str, object]) -> Reply:
    return Reply(body={"ErrCode": 0, "ErrMsg": "success", "Resp": found})
