"""Google Document AI, with the Cloud Storage and the token endpoint that go with it.

Shapes are those generally known of the provider's public protocol definitions (googleapis/googleapis, Document AI
version 1, long-running operations), which were not at hand; no live calls were made. The bucket `pages` is what the
sandbox serves under `/pages`; results are in whatever bucket a request names. Any service account gets a token:
signatures of assertions are not checked.
"""

import base64
import hmac
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar
from urllib.parse import parse_qs, quote

from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.fetching import fetch_upload
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json
from coatcheck_sandbox.recognize import RecognizedPage

__all__ = ["DocumentAiProtocol"]

_STATES = {
    State.WAITING: "WAITING",
    State.IN_PROGRESS: "RUNNING",
    State.SUCCEEDED: "SUCCEEDED",
    State.FAILED: "FAILED",
    State.CANCELED: "CANCELLED",
}
_ENDED = {State.SUCCEEDED, State.FAILED, State.CANCELED}
_WORDS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "FAILED_PRECONDITION",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_INPUT = "gs://pages/"
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_JOB = re.compile(r"(?:^|/)([0-9a-f]{32})/")
_PLACE = "/v1/projects/{project}/locations/{location}"


class DocumentAiProtocol(WireProtocol):
    """Speaks as `https://us-documentai.googleapis.com` does, under `/documentai`.

    `storage_url` is `/documentai` there, too, and a key's `token_uri` is `/documentai/token`, which gives `key` as
    the access token. A file of a result has `pages_per_shard` pages, a listing `objects_per_listing` objects.
    """

    prefix: ClassVar[str] = "/documentai"
    routes: ClassVar[Mapping[str, Operation]] = {
        f"POST {_PLACE}/processors/{{processor:path}}": Operation.SUBMIT,
        f"GET {_PLACE}/operations/{{job_id}}": Operation.QUERY,
        f"POST {_PLACE}/operations/{{job_id}}:cancel": Operation.CANCEL,
        "GET /storage/v1/b/{bucket}/o": Operation.RESULT,
        "GET /storage/v1/b/{bucket}/o/{object:path}": Operation.RESULT,
        "POST /token": Operation.OTHER,
    }

    def __init__(
        self, *, key: str = "sandbox-key", pages_per_shard: int = 1, objects_per_listing: int = 1000
    ) -> None:
        self._key = key
        self._pages_per_shard = pages_per_shard
        self._objects_per_listing = objects_per_listing

    def operation_of(self, request: Request, routed: Operation) -> Operation:
        """A listing of what belongs to no job is about none."""
        return Operation.OTHER if routed is Operation.RESULT and not _job_id(request) else routed

    def authorize(self, request: Request) -> None:
        """Compare the bearer token with the key; who asks for a token has none."""
        if request.url.path.endswith("/token"):
            return
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            raise RequestRefused(401, "UNAUTHENTICATED", "the access token is missing or wrong")

    async def answer(self, request: Request) -> Reply:
        """A token for an assertion, or a listing without objects."""
        if request.method == "GET":
            return Reply(body={"kind": "storage#objects"})
        form = {name: each[0] for name, each in parse_qs((await request.body()).decode()).items()}
        try:
            claims = json.loads(_decoded(form.get("assertion", "").split(".")[1]))
            good = form.get("grant_type") == _GRANT and claims["iss"] and claims["scope"] and claims["exp"]
        except (LookupError, ValueError):
            good = False
        if not good:
            return Reply(
                status=400,
                body={
                    "error": "invalid_grant",
                    "error_description": "the assertion is no JWT that can be used",
                },
            )
        return Reply(body={"access_token": self._key, "expires_in": 3599, "token_type": "Bearer"})

    async def read_upload(self, request: Request) -> Upload:
        """The one document of a batch, in the bucket `pages`."""
        if not request.path_params["processor"].endswith(":batchProcess"):
            raise RequestRefused(404, "NOT_FOUND", "there is nothing but :batchProcess here")
        body = await read_json(request)
        try:
            ((document,), output) = (
                body["inputDocuments"]["gcsDocuments"]["documents"],  # type: ignore[index] # checked by trying
                body["documentOutputConfig"]["gcsOutputConfig"]["gcsUri"],  # type: ignore[index] # the same
            )
            uri, media_type = document["gcsUri"], document["mimeType"]
        except (LookupError, TypeError, ValueError) as error:
            raise RequestRefused(400, "INVALID_ARGUMENT", f"the request is incomplete: {error!r}") from error
        if not media_type or not str(output).startswith("gs://") or not str(uri).startswith("gs://"):
            raise RequestRefused(400, "INVALID_ARGUMENT", "mimeType or a gs:// URI is missing")
        bucket, _, name = str(uri).removeprefix("gs://").partition("/")
        base = str(request.base_url).rstrip("/")
        return await fetch_upload(
            f"{base}/{quote(bucket, safe='')}/{quote(name, safe='')}",
            model=str(request.path_params["processor"]),
            name=name,
            reference=str(output),
        )

    async def read_job_id(self, request: Request) -> str:
        """The end of an operation's name, or a folder in the path of a result."""
        return _job_id(request)

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The operation, which waits."""
        return self.render_job(snapshot, request)

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The operation; `done` is left out while it is not true."""
        place = request.path_params
        state = snapshot.status_word or _STATES[snapshot.state]
        body: dict[str, object] = {
            "name": f"projects/{place['project']}/locations/{place['location']}/operations/{snapshot.job_id}",
            "metadata": {"state": state, "createTime": snapshot.created_at.isoformat()},
        }
        if snapshot.state not in _ENDED or snapshot.status_word is not None:
            return Reply(body=body)
        status: dict[str, object] = {}
        if snapshot.state is State.CANCELED:
            status = {"code": 1, "message": "the operation was cancelled"}
        if snapshot.failure is not None:
            status = {"code": 3, "message": f"{snapshot.failure.code}: {snapshot.failure.message}"}
        output = "" if snapshot.recognition is None else f"{_folder(snapshot)}0"
        process = {
            "inputGcsSource": f"{_INPUT}{snapshot.name}",
            "status": status,
            "outputGcsDestination": output,
        }
        body["metadata"] = {"state": state, "individualProcessStatuses": [process]}
        return Reply(body={**body, "done": True, **({"error": status} if status else {"response": {}})})

    def render_canceled(self, snapshot: Snapshot, request: Request) -> Reply:
        """An empty object."""
        return Reply(body={})

    def render_result(self, snapshot: Snapshot, request: Request) -> Reply:
        """A listing of the files of a result, or one of them."""
        files = dict(self._files(snapshot))
        wanted = request.path_params.get("object")
        if wanted is not None:
            if wanted not in files or request.query_params.get("alt") != "media":
                raise RequestRefused(404, "NOT_FOUND", f"there is no object {wanted!r}")
            return Reply(body=files[wanted])
        names = [name for name in files if name.startswith(request.query_params.get("prefix", ""))]
        begin = int(request.query_params.get("pageToken", "0"))
        end = begin + self._objects_per_listing
        rest = {"nextPageToken": str(end)} if end < len(names) else {}
        items = [{"name": name, "contentType": "application/json"} for name in names[begin:end]]
        return Reply(body={"kind": "storage#objects", "items": items, **rest})

    def _files(self, snapshot: Snapshot) -> Iterator[tuple[str, Mapping[str, object]]]:
        """The files of a result, by the names of the objects."""
        if snapshot.recognition is None:
            return
        folder = _folder(snapshot).removeprefix("gs://").partition("/")[2]
        stem = snapshot.name.rpartition(".")[0] or snapshot.name
        pages, size = snapshot.recognition.pages, self._pages_per_shard
        count = -(-len(pages) // size)
        for index in range(count):
            shard: dict[str, object] = {"shardIndex": str(index), "shardCount": str(count)}
            yield (
                f"{folder}0/{stem}-{index}.json",
                {**_document(pages[index * size : (index + 1) * size], index * size), "shardInfo": shard},
            )

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error envelope."""
        status = 400 if refusal.code == "task_ended" else refusal.status
        word = _WORDS.get(refusal.status, refusal.code)
        return Reply(status=status, body={"error": {"code": status, "message": str(refusal), "status": word}})


def _job_id(request: Request) -> str:
    if "job_id" in request.path_params:
        return str(request.path_params["job_id"])
    found = _JOB.search(request.path_params.get("object") or request.query_params.get("prefix", ""))
    return found[1] if found else ""


def _folder(snapshot: Snapshot) -> str:
    return f"{(snapshot.reference or '').rstrip('/')}/{snapshot.job_id}/"


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _document(pages: Sequence[RecognizedPage], before: int) -> Mapping[str, object]:
    """The file of some pages: one text, and what points into it."""
    text = ""
    found = []
    for number, page in enumerate(pages, before + 1):
        begin = len(text)
        paragraphs = []
        for block in page.blocks:
            at = len(text)
            text += f"{block.text}\n"
            corners = (
                (block.left, block.top),
                (block.right, block.top),
                (block.right, block.bottom),
                (block.left, block.bottom),
            )
            paragraphs.append(
                {
                    "layout": {
                        **_anchor(at, len(text)),
                        "boundingPoly": {"vertices": [{"x": x, "y": y} for x, y in corners]},
                    }
                }
            )
        dimension = {"width": page.width, "height": page.height, "unit": "pixels"}
        found.append(
            {
                "pageNumber": number,
                "dimension": dimension,
                "layout": _anchor(begin, len(text)),
                "paragraphs": paragraphs,
            }
        )
    return {"text": text, "pages": found}


def _anchor(begin: int, end: int) -> Mapping[str, object]:
    """Numbers of 64 bits are texts in JSON, and 0 is left out."""
    start = {"startIndex": str(begin)} if begin else {}
    return {"textAnchor": {"textSegments": [{**start, "endIndex": str(end)}]}}
