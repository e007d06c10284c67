"""Kling's video generation.

Read in 2026 from mirrored pages of Kling's documentation and public clients (vercel/ai at ed857f50,
QuantumNous/new-api, tryAGI/KlingAI); no live calls were made. That a second job with the same `external_task_id` is
refused, and with which code, and that an unknown job is 404 with code 1203, are the sandbox's choice. Materials are
asked for and not fetched: videos are made of the prompt.
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

__all__ = ["KlingVideoProtocol"]

_STATUS_WORDS = {
    State.WAITING: "submitted",
    State.IN_PROGRESS: "processing",
    State.SUCCEEDED: "succeed",
    State.FAILED: "failed",
    State.CANCELED: "failed",
}
_NEEDED = {"text2video": "prompt", "image2video": "image", "multi-image2video": "image_list"}
_SIZES = {"16:9": (320, 180), "9:16": (180, 320), "1:1": (180, 180)}
_CODES = {"task_not_found": 1203, "invalid_json": 1201}
"""The provider's numbers for what the sandbox calls by a word."""


class KlingVideoProtocol(WireProtocol):
    """Speaks as `https://api-singapore.klingai.com` does, under `/kling-video`.

    It takes the key itself, or a token that was signed with the secret key of the access key.
    """

    prefix: ClassVar[str] = "/kling-video"
    routes: ClassVar[Mapping[str, Operation]] = {
        **{f"POST /v1/videos/{kind}": Operation.SUBMIT for kind in _NEEDED},
        **{f"GET /v1/videos/{kind}/{{job_id}}": Operation.QUERY for kind in _NEEDED},
    }

    def __init__(
        self,
        *,
        key: str = "sandbox-key",
        pair: tuple[str, str] = ("sandbox-access-key", "sandbox-secret-key"),
    ) -> None:
        self._key = key
        self._access_key, self._secret_key = pair
        self._jobs: dict[str, str] = {}
        """The ids of jobs by their creators' own, which do for queries, too."""
        self._kinds: dict[str, str] = {}

    def authorize(self, request: Request) -> None:
        """Compare the bearer token with the key, or read it as a token that the client has signed."""
        bearer, _, given = request.headers.get("authorization", "").partition(" ")
        if bearer != "Bearer" or not given:
            raise RequestRefused(401, "1001", "Authorization is empty")
        if hmac.compare_digest(given.encode(), self._key.encode()):
            return
        found = read_jwt(given, self._secret_key)
        claims = found[1] if found else {}
        begins, ends = claims.get("nbf"), claims.get("exp")
        if claims.get("iss") != self._access_key or not isinstance(begins, int) or not isinstance(ends, int):
            raise RequestRefused(401, "1002", "Authorization is invalid")
        if begins > time.time():
            raise RequestRefused(401, "1003", "Authorization is not yet valid")
        if ends <= time.time():
            raise RequestRefused(401, "1004", "Authorization has expired")

    async def read_upload(self, request: Request) -> Upload:
        """What to film: the prompt, in the shape and for as long as was asked for."""
        body = await read_json(request)
        needed = _NEEDED[_kind_of(request)]
        if not body.get(needed):
            raise RequestRefused(400, "1201", f"{needed} is missing")
        if body.get("duration", "5") not in {"5", "10"}:
            raise RequestRefused(400, "1201", "duration is '5' or '10'")
        reference = body.get("external_task_id")
        if reference is not None and (not isinstance(reference, str) or reference in self._jobs):
            raise RequestRefused(400, "1201", "external_task_id must be a text, and unique")
        width, height = _SIZES.get(str(body.get("aspect_ratio")), _SIZES["16:9"])
        order = order_of(body.get("prompt"), seconds=body.get("duration"), width=width, height=height)
        return film_upload(order, model=str(body.get("model_name", "kling-v1")), reference=reference)

    async def read_job_id(self, request: Request) -> str:
        """The job's id, by itself or by its creator's own; at the path to which it was submitted."""
        given = str(request.path_params["job_id"])
        job_id = self._jobs.get(given, given)
        if self._kinds.get(job_id) != request.url.path.rpartition("/")[0].rpartition("/")[2]:
            self.authorize(request)
            raise RequestRefused(404, "task_not_found", "no such task")
        return job_id

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The job, submitted."""
        if snapshot.reference is not None:
            self._jobs[snapshot.reference] = snapshot.job_id
        self._kinds[snapshot.job_id] = _kind_of(request)
        return self.render_job(snapshot, request)

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The job, with its videos if it has succeeded."""
        stamp = int(snapshot.created_at.timestamp() * 1000)
        data: dict[str, object] = {
            "task_id": snapshot.job_id,
            "task_status": snapshot.status_word or _STATUS_WORDS[snapshot.state],
            "task_status_msg": "",
            "task_info": {"external_task_id": snapshot.reference},
            "created_at": stamp,
            "updated_at": stamp,
        }
        if snapshot.film is not None:
            video = {
                "id": snapshot.job_id,
                "url": self.film_url(snapshot, request),
                "duration": str(snapshot.film.seconds),
            }
            data["task_result"] = {"videos": [video]}
        if snapshot.failure is not None:
            data["task_status_msg"] = snapshot.failure.message
        return Reply(body={"code": 0, "message": "SUCCEED", "request_id": "sandbox", "data": data})

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The envelope with a code."""
        code: object = _CODES.get(refusal.code, refusal.code)
        if isinstance(code, str) and code.isdecimal():
            code = int(code)
        body = {"code": code, "message": str(refusal), "request_id": "sandbox"}
        return Reply(status=refusal.status, body=body)


def _kind_of(request: Request) -> str:
    return request.url.path.rpartition("/")[2]
