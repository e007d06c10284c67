"""Google's Veo, by Vertex AI, with the Cloud Storage that goes with it.

Read in 2026 from googleapis/python-genai at 66807187; no live calls were made. Videos are in whatever bucket a request
names; images are not looked at. A job that fails with the code `raiMediaFiltered` is one whose videos were filtered
out.
"""

import hmac
import re
from collections.abc import Mapping
from typing import ClassVar

from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.filming import film_upload
from coatcheck_sandbox.jobs import Snapshot, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json
from coatcheck_sandbox.providers.veo_video import read_order, render_google_error, render_operation

__all__ = ["VertexVideoProtocol"]

_MODEL = "/projects/{project}/locations/{location}/publishers/google/models/{model}"
_JOB = re.compile(r"(?:^|/)([0-9a-f]{32})(?:/|$)")


class VertexVideoProtocol(WireProtocol):
    """Speaks as `https://us-central1-aiplatform.googleapis.com/v1beta1` does, under `/vertex-video`.

    `storage_url` is `/vertex-video` there, too.
    """

    prefix: ClassVar[str] = "/vertex-video"
    routes: ClassVar[Mapping[str, Operation]] = {
        f"POST {_MODEL}:predictLongRunning": Operation.SUBMIT,
        f"POST {_MODEL}:fetchPredictOperation": Operation.QUERY,
        "GET /storage/v1/b/{bucket}/o/{object:path}": Operation.RESULT,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key

    def authorize(self, request: Request) -> None:
        """Compare the bearer token with the key, also for objects."""
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            raise RequestRefused(401, "UNAUTHENTICATED", "the access token is missing or wrong")

    async def read_upload(self, request: Request) -> Upload:
        """What to film; images and the place for the video are in Cloud Storage."""
        body = await read_json(request)
        order = read_order(body, image_field="gcsUri")
        parameters = body.get("parameters")
        place = parameters.get("storageUri") if isinstance(parameters, dict) else None
        if not str(place).startswith("gs://"):
            raise RequestRefused(400, "INVALID_ARGUMENT", "there is no storageUri in the parameters")
        path = request.url.path.removeprefix(f"{self.prefix}/").partition(":")[0]
        return film_upload(order, model=path, reference=str(place))

    async def read_job_id(self, request: Request) -> str:
        """The end of the operation's name, or a folder in the name of an object."""
        name = request.path_params.get("object")
        if name is None:
            name = str((await read_json(request)).get("operationName"))
        found = _JOB.search(str(name))
        return found[1] if found else ""

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The operation, by its name alone."""
        return Reply(body={"name": _name(snapshot)})

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The operation, with the place of the video."""
        response = {"videos": [{"gcsUri": _place(snapshot), "mimeType": "video/mp4"}]}
        return Reply(body=render_operation(_name(snapshot), snapshot, response))

    def render_result(self, snapshot: Snapshot, request: Request) -> Reply:
        """The content of an object."""
        wanted = f"gs://{request.path_params['bucket']}/{request.path_params['object']}"
        media = request.query_params.get("alt") == "media"
        if snapshot.film is None or wanted != _place(snapshot) or not media:
            raise RequestRefused(404, "NOT_FOUND", f"there is no object {wanted!r}")
        return Reply(body=snapshot.film.content, media_type=snapshot.film.media_type)

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error envelope."""
        return render_google_error(refusal)


def _name(snapshot: Snapshot) -> str:
    return f"{snapshot.model}/operations/{snapshot.job_id}"


def _place(snapshot: Snapshot) -> str:
    return f"{(snapshot.reference or '').rstrip('/')}/{snapshot.job_id}/sample_0.mp4"
