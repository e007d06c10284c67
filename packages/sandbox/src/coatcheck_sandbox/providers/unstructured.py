"""Unstructured's on-demand jobs.

Read from the official client (Unstructured-IO/unstructured-python-client at 5e6f238c) and the pages of
Unstructured-IO/docs; no live calls were made. A document that cannot be read makes a job that is completed, has no
output and names the file among those that failed: that is the sandbox's choice, so that a client meets it.
"""

import hmac
import json
from collections.abc import Mapping
from typing import ClassVar

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol
from coatcheck_sandbox.recognize import Recognition

__all__ = ["UnstructuredProtocol"]

_STATUS_WORDS = {
    State.WAITING: "SCHEDULED",
    State.IN_PROGRESS: "IN_PROGRESS",
    State.SUCCEEDED: "COMPLETED",
    State.FAILED: "FAILED",
    State.CANCELED: "STOPPED",
}
_OF_THE_FILE = "document_unreadable"
"""The code of failures that are the file's, not the job's."""
_MAX_BYTES = 10 * 1024 * 1024


class UnstructuredProtocol(WireProtocol):
    """Speaks as `https://platform.unstructuredapp.io` does, under `/unstructured`."""

    prefix: ClassVar[str] = "/unstructured"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /api/v1/jobs/": Operation.SUBMIT,
        "GET /api/v1/jobs/{job_id}": Operation.QUERY,
        "GET /api/v1/jobs/{job_id}/download": Operation.RESULT,
        "GET /api/v1/jobs/{job_id}/failed-files": Operation.RESULT,
        "POST /api/v1/jobs/{job_id}/cancel": Operation.CANCEL,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key

    def authorize(self, request: Request) -> None:
        """Compare the header with the key."""
        given = request.headers.get("unstructured-api-key", "")
        if not hmac.compare_digest(given.encode(), self._key.encode()):
            raise RequestRefused(401, "unauthorized", "the API key is missing or wrong")

    async def read_upload(self, request: Request) -> Upload:
        """The one file; which template is wanted is kept as the job's model."""
        try:
            async with request.form() as form:
                data, files = form.get("request_data"), form.getlist("input_files")
                wanted = json.loads(data) if isinstance(data, str) else None
                if not isinstance(wanted, dict) or not {"template_id", "job_nodes"} & wanted.keys():
                    raise RequestRefused(
                        422, "request_data", "request_data has no template_id and no job_nodes"
                    )
                if len(files) != 1 or not isinstance(files[0], UploadFile) or not files[0].filename:
                    raise RequestRefused(422, "input_files", "the sandbox takes one file in input_files")
                content = await files[0].read()
                if len(content) > _MAX_BYTES:
                    raise RequestRefused(422, "input_files", "the file is larger than 10 MB")
                model = str(wanted.get("template_id", "custom"))
                return Upload(name=files[0].filename, content=content, model=model)
        except (HTTPException, ValueError) as error:
            raise RequestRefused(422, "request_data", f"the form can't be read: {error}") from error

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The job, which is scheduled."""
        return Reply(body=_job(snapshot))

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The job."""
        return Reply(body=_job(snapshot))

    def render_result(self, snapshot: Snapshot, request: Request) -> Reply:
        """The elements of the file, or the files that failed."""
        if request.url.path.endswith("/failed-files"):
            failure = snapshot.failure
            failed = [] if failure is None else [{"document": snapshot.name, "error": failure.message}]
            return Reply(body={"failed_files": failed})
        recognition = snapshot.recognition
        if recognition is None or request.query_params.get("file_id") != snapshot.name:
            raise RequestRefused(404, "not_found", "there is no output of this file")
        return Reply(body=_elements(snapshot.name, recognition))

    def render_canceled(self, snapshot: Snapshot, request: Request) -> Reply:
        """The job, which has stopped."""
        return Reply(body=_job(snapshot))

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The detail: a list for what does not fit the schema, else words."""
        if refusal.status == 422:  # noqa: PLR2004 - the status of what does not fit the schema
            error = {"loc": ["body", refusal.code], "msg": str(refusal), "type": "value_error"}
            return Reply(status=422, body={"detail": [error]})
        return Reply(status=refusal.status, body={"detail": str(refusal)})


def _job(snapshot: Snapshot) -> dict[str, object]:
    of_the_file = snapshot.failure is not None and snapshot.failure.code == _OF_THE_FILE
    state = State.SUCCEEDED if of_the_file else snapshot.state
    return {
        "id": snapshot.job_id,
        "workflow_id": snapshot.job_id,
        "workflow_name": snapshot.model,
        "status": snapshot.status_word or _STATUS_WORDS[state],
        "created_at": snapshot.created_at.isoformat(),
        "runtime": None,
        "input_file_ids": [snapshot.name],
        "output_node_files": None,
        "job_type": "ephemeral",
    }


def _elements(name: str, recognition: Recognition) -> list[dict[str, object]]:
    return [
        {
            "type": "NarrativeText",
            "element_id": f"{number}-{place}",
            "text": block.text,
            "metadata": {
                "filename": name,
                "page_number": number,
                "coordinates": {
                    "points": [
                        [block.left, block.top],
                        [block.left, block.bottom],
                        [block.right, block.bottom],
                        [block.right, block.top],
                    ],
                    "system": "PixelSpace",
                    "layout_width": page.width,
                    "layout_height": page.height,
                },
            },
        }
        for number, page in enumerate(recognition.pages, 1)
        for place, block in enumerate(page.blocks)
    ]
