"""Zhipu's parser of files.

Read in 2026 from zai-org/z-ai-sdk-python at d8d898bb, from docs.z.ai (api-code), and from a public copy of the OpenAPI
page of docs.bigmodel.cn; no live calls were made. The HTTP statuses of errors, and 404 for a job that is not there,
are the sandbox's choice.
"""

import hmac
import io
import zipfile
from collections.abc import Mapping
from typing import ClassVar

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol

__all__ = ["ZhipuProtocol"]

_STATUS_WORDS = {
    State.WAITING: "processing",
    State.IN_PROGRESS: "processing",
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELED: "failed",
}
_TOOLS = frozenset({"lite", "expert", "prime"})


class ZhipuProtocol(WireProtocol):
    """Speaks as `https://open.bigmodel.cn/api/paas/v4` does, under `/zhipu`."""

    prefix: ClassVar[str] = "/zhipu"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /files/parser/create": Operation.SUBMIT,
        "GET /files/parser/result/{job_id}/{form}": Operation.QUERY,
        "GET /results/{job_id}/result.zip": Operation.RESULT,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key

    def authorize(self, request: Request) -> None:
        """Compare the bearer token with the key; links of results are presigned."""
        if request.url.path.startswith(f"{self.prefix}/results/"):
            return
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            raise RequestRefused(401, "1002", "the API key is missing or wrong")

    async def read_upload(self, request: Request) -> Upload:
        """The parts `tool_type` and `file` of a multipart form; other text parts are ignored."""
        try:
            async with request.form() as form:
                tool, file = form.get("tool_type"), form.get("file")
                if tool not in _TOOLS:
                    raise RequestRefused(400, "1210", "tool_type must be lite, expert or prime")
                if not isinstance(file, UploadFile) or not file.filename:
                    raise RequestRefused(400, "1213", "the file part 'file' is missing")
                return Upload(name=file.filename, content=await file.read(), model=str(tool))
        except (HTTPException, ValueError) as error:
            raise RequestRefused(400, "1210", f"the form can't be read: {error}") from error

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The id."""
        return Reply(body={"task_id": snapshot.job_id, "message": "created", "success": True})

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The status; with the text or a link once the job has succeeded, whichever the path asks for."""
        form = request.path_params["form"]
        if form not in {"text", "download_link"}:
            raise RequestRefused(400, "1210", "the format must be text or download_link")
        body: dict[str, object] = {
            "task_id": snapshot.job_id,
            "status": snapshot.status_word or _STATUS_WORDS[snapshot.state],
            "message": "" if snapshot.failure is None else snapshot.failure.message,
            "content": None,
            "parsing_result_url": None,
        }
        if snapshot.recognition is not None and form == "text":
            body["content"] = snapshot.recognition.text
        elif snapshot.recognition is not None:
            url = f"{self.served_at(request)}/results/{snapshot.job_id}/result.zip"
            body["parsing_result_url"] = url
        return Reply(body=body)

    def render_result(self, snapshot: Snapshot, request: Request) -> Reply:
        """The archive."""
        if snapshot.recognition is None:
            raise RequestRefused(404, "not_found", "there is no result yet")
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("result.md", snapshot.recognition.text)
        return Reply(body=packed.getvalue(), media_type="application/zip")

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error envelope."""
        return Reply(status=refusal.status, body={"error": {"code": refusal.code, "message": str(refusal)}})
