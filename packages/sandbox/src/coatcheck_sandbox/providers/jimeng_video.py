"""Jimeng, of Volcengine's Visual Intelligence.

Read in 2026 from QuantumNous/new-api at 0d4812e5, volcengine/volc-sdk-python at 0045f01d (signatures, which are checked
here by code of its own) and copies of the provider's pages 85621 (status words, error codes); no live calls were made.
Images are not fetched. A job that fails does so with the code of the fault, or that of a result that was refused.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import ClassVar
from urllib.parse import quote

from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.filming import film_upload, order_of
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json

__all__ = ["JimengVideoProtocol"]

_ACTIONS = {"CVSync2AsyncSubmitTask": Operation.SUBMIT, "CVSync2AsyncGetResult": Operation.QUERY}
_VERSION = "2022-08-31"
_STATUSES = {
    State.WAITING: "in_queue",
    State.IN_PROGRESS: "generating",
    State.SUCCEEDED: "done",
    State.CANCELED: "expired",
}
_FRAMES_A_SECOND = 24
_SIGNED = {"content-type", "host", "x-content-sha256", "x-date"}
"""Headers that a signature must cover."""
_REFUSED_RESULT = "50511"
_BY_STATUS = {429: 50429, 500: 50500, 503: 50500}


class JimengVideoProtocol(WireProtocol):
    """Speaks as `https://visual.volcengineapi.com` does, under `/jimeng-video`.

    `key` is the secret access key; any access key id goes with it.
    """

    prefix: ClassVar[str] = "/jimeng-video"
    routes: ClassVar[Mapping[str, Operation]] = {"POST /": Operation.OTHER}

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key

    def operation_of(self, request: Request, routed: Operation) -> Operation:
        """What `Action` in the query names."""
        return _ACTIONS.get(request.query_params.get("Action", ""), routed)

    def authorize(self, request: Request) -> None:
        """Check the signature of the whole request, and the version."""
        scheme, _, rest = request.headers.get("authorization", "").partition(" ")
        fields = dict(each.strip().partition("=")[::2] for each in rest.split(","))
        scope = fields.get("Credential", "").split("/")[1:]
        names = fields.get("SignedHeaders", "").split(";")
        if scheme != "HMAC-SHA256" or scope[1:] != ["cn-north-1", "cv", "request"]:
            raise RequestRefused(401, "MissingSignature", "the request is not signed")
        right = self._signature(request, scope, names)
        if not set(names) >= _SIGNED or not hmac.compare_digest(fields.get("Signature", ""), right):
            raise RequestRefused(401, "SignatureDoesNotMatch", "the signature is not that of the request")
        if request.query_params.get("Version") != _VERSION:
            raise RequestRefused(404, "InvalidActionOrVersion", f"Version must be {_VERSION}")

    def _signature(self, request: Request, scope: Sequence[str], names: Sequence[str]) -> str:
        body: bytes = getattr(request.state, "body", b"")
        query = sorted(request.query_params.multi_items())
        asked = [
            request.method,
            request.scope["raw_path"].decode(),
            "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in query),
            *(f"{name}:{request.headers.get(name, '').strip()}" for name in names),
            "",
            ";".join(names),
            hashlib.sha256(body).hexdigest(),
        ]
        digest = hashlib.sha256("\n".join(asked).encode()).hexdigest()
        text = "\n".join(("HMAC-SHA256", request.headers.get("x-date", ""), "/".join(scope), digest))
        signing = self._key.encode()
        for each in (*scope, text):
            signing = hmac.digest(signing, each.encode(), "sha256")
        return signing.hex()

    async def read_upload(self, request: Request) -> Upload:
        """What to film: the prompt, for as many frames as were asked for."""
        body = await self._read(request)
        model = body.get("req_key")
        if not isinstance(model, str) or not model:
            raise RequestRefused(400, "MissingParameter", "req_key is missing")
        frames = body.get("frames")
        seconds = (frames - 1) / _FRAMES_A_SECOND if isinstance(frames, int) else None
        return film_upload(order_of(body.get("prompt"), seconds=seconds, seed=body.get("seed")), model=model)

    async def read_job_id(self, request: Request) -> str:
        """The member `task_id`."""
        body = await self._read(request)
        request.state.req_key = body.get("req_key")
        return str(body.get("task_id", ""))

    async def _read(self, request: Request) -> Mapping[str, object]:
        request.state.body = await request.body()
        return await read_json(request)

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The id alone."""
        return _envelope({"task_id": snapshot.job_id})

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The status and, once it is done, the URL of the video. It is not found under another `req_key`."""
        if request.state.req_key != snapshot.model:
            return _envelope({"status": "not_found"})
        if snapshot.failure is not None and snapshot.status_word is None:
            code = snapshot.failure.code
            return _error(400, int(code if code.isdecimal() else _REFUSED_RESULT), snapshot.failure.message)
        word = snapshot.status_word or _STATUSES.get(snapshot.state, "done")
        url = "" if snapshot.film is None else self.film_url(snapshot, request)
        return _envelope({"status": word, "video_url": url, "image_urls": None, "resp_data": ""})

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The envelope with a code; the gateway has another, and a job that is not there is a status."""
        if refusal.code == "task_not_found":
            return _envelope({"status": "not_found"})
        code = int(refusal.code) if refusal.code.isdecimal() else _BY_STATUS.get(refusal.status)
        if code is not None:
            return _error(refusal.status, code, str(refusal))
        error = {"Code": refusal.code, "Message": str(refusal)}
        return Reply(status=refusal.status, body={"ResponseMetadata": {"RequestId": "0", "Error": error}})


def _envelope(data: Mapping[str, object]) -> Reply:
    return Reply(body={"code": 10000, "data": data, "message": "Success", "request_id": "0", "status": 10000})


def _error(status: int, code: int, message: str) -> Reply:
    body = {"code": code, "data": None, "message": message, "request_id": "0", "status": code}
    return Reply(status=status, body=body)
