"""Datalab's conversion of documents.

Read from datalab-to/sdk at 07af6c2b and documentation.datalab.to; no live calls were made. The engine finds no
images, so `images` is always empty.
"""

import hmac
from collections.abc import Mapping
from typing import ClassVar

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.fetching import fetch_upload
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol

__all__ = ["DatalabProtocol"]

_MODES = ("fast", "balanced", "accurate")


class DatalabProtocol(WireProtocol):
    """Speaks as `https://www.datalab.to` does, under `/datalab`."""

    prefix: ClassVar[str] = "/datalab"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /api/v1/convert": Operation.SUBMIT,
        "GET /api/v1/convert/{job_id}": Operation.QUERY,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key

    def authorize(self, request: Request) -> None:
        """Compare the header `X-Api-Key` with the key."""
        if not hmac.compare_digest(request.headers.get("x-api-key", "").encode(), self._key.encode()):
            raise RequestRefused(401, "unauthorized", "The API key in X-API-Key is missing or wrong.")

    async def read_upload(self, request: Request) -> Upload:
        """The document of `file_url`, or else of the part `file`."""
        try:
            async with request.form() as form:
                mode, url, file = form.get("mode", "balanced"), form.get("file_url"), form.get("file")
                if mode not in _MODES:
                    raise RequestRefused(422, "invalid", f"mode is one of {', '.join(_MODES)}")
                if form.get("output_format", "markdown") != "markdown":
                    raise RequestRefused(422, "invalid", "the sandbox gives Markdown only")
                if isinstance(file, UploadFile) and file.filename:
                    return Upload(name=file.filename, content=await file.read(), model=str(mode))
        except (HTTPException, ValueError) as error:
            raise RequestRefused(400, "invalid_form", f"the form can't be read: {error}") from error
        if not isinstance(url, str) or not url:
            raise RequestRefused(422, "invalid", "one of file and file_url is needed")
        return await fetch_upload(url, model=str(mode))

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The id, and the URL at which the job is asked about."""
        url = f"{self.served_at(request)}/api/v1/convert/{snapshot.job_id}"
        return Reply(
            body={
                "success": True,
                "error": None,
                "request_id": snapshot.job_id,
                "request_check_url": url,
            }
        )

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The status; a job that failed is complete without success."""
        if snapshot.state not in {State.SUCCEEDED, State.FAILED}:
            return Reply(body={"status": snapshot.status_word or "processing"})
        recognition = snapshot.recognition
        return Reply(
            body={
                "status": snapshot.status_word or "complete",
                "output_format": "markdown",
                "markdown": None if recognition is None else recognition.text,
                "images": {},
                "metadata": {},
                "page_count": None if recognition is None else len(recognition.pages),
                "success": snapshot.failure is None,
                "error": None if snapshot.failure is None else snapshot.failure.message,
            }
        )

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The reason, in `detail`."""
        return Reply(status=refusal.status, body={"detail": str(refusal)})
