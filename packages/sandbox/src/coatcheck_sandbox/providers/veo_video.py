"""Google's Veo, by the Gemini API; what Vertex AI has in common with it, too.

Read in 2026 from googleapis/python-genai at 66807187; no live calls were made. Images are decoded and not looked at:
videos are made of the prompt. A job that fails with the code `raiMediaFiltered` is one whose videos were filtered out.
"""

import base64
import hmac
from collections.abc import Mapping
from typing import Any, ClassVar

from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.filming import film_upload, order_of
from coatcheck_sandbox.jobs import FilmOrder, Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json

__all__ = ["VeoVideoProtocol", "read_order", "render_google_error", "render_operation"]

FILTERED = "raiMediaFiltered"
_WORDS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
_HEIGHTS = {"720p": 720, "1080p": 1080}
_INTERNAL = 13


class VeoVideoProtocol(WireProtocol):
    """Speaks as `https://generativelanguage.googleapis.com/v1beta` does, under `/veo-video`."""

    prefix: ClassVar[str] = "/veo-video"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /models/{model}:predictLongRunning": Operation.SUBMIT,
        "GET /models/{model}/operations/{job_id}": Operation.QUERY,
        "GET /files/{job_id}:download": Operation.RESULT,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key

    def authorize(self, request: Request) -> None:
        """Compare the API's header with the key, also for the content."""
        given = request.headers.get("x-goog-api-key", "")
        if not hmac.compare_digest(given.encode(), self._key.encode()):
            raise RequestRefused(400, "API_KEY_INVALID", "API key not valid")

    async def read_upload(self, request: Request) -> Upload:
        """What to film; images are bytes."""
        order = read_order(await read_json(request), image_field="bytesBase64Encoded")
        return film_upload(order, model=str(request.path_params["model"]))

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The operation, by its name alone."""
        return Reply(body={"name": _name(snapshot)})

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The operation, with the URI of the video, which takes the key."""
        sample = {
            "video": {
                "uri": f"{self.served_at(request)}/files/{snapshot.job_id}:download?alt=media",
                "encoding": "video/mp4",
            }
        }
        response = {"generateVideoResponse": {"generatedSamples": [sample]}}
        return Reply(body=render_operation(_name(snapshot), snapshot, response))

    def render_result(self, snapshot: Snapshot, request: Request) -> Reply:
        """Where the content is, for whoever knows it."""
        if snapshot.film is None:
            raise RequestRefused(404, "NOT_FOUND", "there is no such file, or not yet")
        return Reply(status=302, headers={"location": self.film_url(snapshot, request)})

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error envelope."""
        return render_google_error(refusal)


def read_order(body: Mapping[str, Any], *, image_field: str) -> FilmOrder:
    """What the one instance and the parameters of a body order; its images have their content in `image_field`.

    Raises:
        RequestRefused: there is no such instance, or an image has no content or type.
    """
    try:
        (instance,) = body["instances"]
        parameters = body.get("parameters", {})
        references = [each["image"] for each in instance.get("referenceImages", ())]
        for image in (instance.get("image"), instance.get("lastFrame"), *references):
            if image is not None:
                _check(image, image_field)
        height = _HEIGHTS.get(parameters.get("resolution"))
        return order_of(
            instance.get("prompt"),
            seconds=parameters.get("durationSeconds"),
            width=None if height is None else height * 16 // 9,
            height=height,
            fps=parameters.get("fps"),
            seed=parameters.get("seed"),
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise RequestRefused(400, "INVALID_ARGUMENT", f"the request cannot be used: {error!r}") from error


def _check(image: Mapping[str, str], image_field: str) -> None:
    content = image[image_field]
    if not content or not image["mimeType"].startswith("image/"):
        raise ValueError(f"an image without {image_field} or mimeType")
    if image_field == "bytesBase64Encoded":
        base64.b64decode(content, validate=True)


def render_operation(name: str, snapshot: Snapshot, response: Mapping[str, object]) -> Mapping[str, object]:
    """An operation; `done` is left out while it is not true, and `response` belongs to one that has succeeded."""
    if snapshot.status_word is not None:
        return {"name": name, "done": snapshot.status_word}
    if snapshot.state in {State.WAITING, State.IN_PROGRESS}:
        return {"name": name}
    if snapshot.failure is None:
        return {"name": name, "done": True, "response": {} if snapshot.film is None else response}
    if snapshot.failure.code == FILTERED:
        filtered = {f"{FILTERED}Count": 1, f"{FILTERED}Reasons": [snapshot.failure.message]}
        inside: Mapping[str, object] = {
            each: filtered for each in response if each == "generateVideoResponse"
        }
        return {"name": name, "done": True, "response": inside or filtered}
    message = f"{snapshot.failure.code}: {snapshot.failure.message}"
    return {"name": name, "done": True, "error": {"code": _INTERNAL, "message": message}}


def render_google_error(refusal: RequestRefused) -> Reply:
    """The error envelope of Google's APIs."""
    error: dict[str, object] = {
        "code": refusal.status,
        "message": str(refusal),
        "status": _WORDS.get(refusal.status, "UNKNOWN"),
    }
    if refusal.code == "API_KEY_INVALID":
        kind = "type.googleapis.com/google.rpc.ErrorInfo"
        error["details"] = [{"@type": kind, "reason": refusal.code, "domain": "googleapis.com"}]
    return Reply(status=refusal.status, body={"error": error})


def _name(snapshot: Snapshot) -> str:
    return f"models/{snapshot.model}/operations/{snapshot.job_id}"
