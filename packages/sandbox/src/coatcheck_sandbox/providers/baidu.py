"""Baidu AI Cloud's document parsing with PaddleOCR-VL.

Read in 2026 from agents-flex's adapter (`agents-flex-ocr-baidu` at 08a4f43d) and the pages
ai.baidu.com/ai-doc/OCR/7mh8u7ruk and cloud.baidu.com/doc/NLP/s/Tk6z52d7c; no live calls were made. The HTTP status
404 for a job that is not there is the sandbox's choice: the provider does not document it.
"""

import hmac
import uuid
from collections.abc import Mapping
from typing import ClassVar

from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.fetching import fetch_upload
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol
from coatcheck_sandbox.recognize import RecognizedPage

__all__ = ["BaiduProtocol"]

_JOBS = "/rest/2.0/brain/online/v2/paddle-vl-parser/task"
_STATUS_WORDS = {
    State.WAITING: "pending",
    State.IN_PROGRESS: "processing",
    State.SUCCEEDED: "success",
    State.FAILED: "failed",
    State.CANCELED: "failed",
}
_TOKEN_SECONDS = 2_592_000


class BaiduProtocol(WireProtocol):
    """Speaks as `https://aip.baidubce.com` does, under `/baidu`.

    `key` is good as an access token in the query, as the secret of any client, and after ``bce-v3/`` as a bearer
    token.
    """

    prefix: ClassVar[str] = "/baidu"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /oauth/2.0/token": Operation.OTHER,
        f"POST {_JOBS}": Operation.SUBMIT,
        f"POST {_JOBS}/query": Operation.QUERY,
        "GET /results/{job_id}/full.md": Operation.RESULT,
        "GET /results/{job_id}/result.json": Operation.RESULT,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key
        self._tokens: set[str] = set()

    def expire_tokens(self) -> None:
        """Let every token that was minted end now."""
        self._tokens.clear()

    def authorize(self, request: Request) -> None:
        """Check the bearer token, or the access token in the query; links of results are presigned."""
        path = request.url.path.removeprefix(self.prefix)
        if path.startswith("/results/"):
            return
        if path == "/oauth/2.0/token":
            if not _same(request.query_params.get("client_secret", ""), self._key):
                raise RequestRefused(401, "invalid_client", "unknown client id")
            return
        bearer = request.headers.get("authorization", "")
        token = request.query_params.get("access_token", "")
        if token and not (token in self._tokens or _same(token, self._key)):
            raise RequestRefused(200, "111", "Access token expired")
        if not token and not _same(bearer, f"Bearer bce-v3/{self._key}"):
            raise RequestRefused(200, "110", "Access token invalid or no longer valid")

    async def answer(self, request: Request) -> Reply:
        """A new access token."""
        if request.query_params.get("grant_type") != "client_credentials":
            raise RequestRefused(400, "unsupported_grant_type", "the grant_type is not client_credentials")
        token = f"24.{uuid.uuid4().hex}"
        self._tokens.add(token)
        return Reply(body={"access_token": token, "expires_in": _TOKEN_SECONDS, "scope": "public"})

    async def read_upload(self, request: Request) -> Upload:
        """The document at `file_url`, under the name in `file_name`."""
        form = await request.form()
        url, name = form.get("file_url"), form.get("file_name")
        if not isinstance(url, str) or not url or not isinstance(name, str) or not name:
            raise RequestRefused(200, "282003", "missing parameters: file_url and file_name")
        return await fetch_upload(url, name=name)

    async def read_job_id(self, request: Request) -> str:
        """The form field `task_id` of a query; the path of a result."""
        if "job_id" in request.path_params:
            return str(request.path_params["job_id"])
        task_id = (await request.form()).get("task_id")
        if not isinstance(task_id, str) or not task_id:
            raise RequestRefused(200, "282003", "missing parameters: task_id")
        return task_id

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The envelope with the id."""
        return _good({"task_id": snapshot.job_id})

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The status; with links once the job has succeeded, with `task_error` once it has failed."""
        done = snapshot.recognition is not None
        results = f"{self.served_at(request)}/results/{snapshot.job_id}"
        return _good(
            {
                "task_id": snapshot.job_id,
                "status": snapshot.status_word or _STATUS_WORDS[snapshot.state],
                "task_error": None if snapshot.failure is None else snapshot.failure.message,
                "markdown_url": f"{results}/full.md" if done else None,
                "parse_result_url": f"{results}/result.json" if done else None,
            }
        )

    def render_result(self, snapshot: Snapshot, request: Request) -> Reply:
        """The text as Markdown, or the pages with their layouts as JSON."""
        if snapshot.recognition is None:
            raise RequestRefused(404, "not_found", "there is no result yet")
        if request.url.path.endswith(".md"):
            return Reply(body=snapshot.recognition.text.encode(), media_type="text/markdown")
        pages = [_page(number, page) for number, page in enumerate(snapshot.recognition.pages)]
        return Reply(body={"file_name": snapshot.name, "file_id": snapshot.job_id, "pages": pages})

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error envelope; that of the token endpoint is another."""
        message = str(refusal)
        if refusal.code == "invalid_client":
            error = {"error": refusal.code, "error_description": message}
            return Reply(status=refusal.status, body=error)
        code: object = int(refusal.code) if refusal.code.isdecimal() else refusal.code
        body = {"log_id": 1, "error_code": code, "error_msg": message, "result": None}
        return Reply(status=refusal.status, body=body)


def _same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(), right.encode())


def _good(result: object) -> Reply:
    return Reply(body={"log_id": 1, "error_code": 0, "error_msg": "", "result": result})


def _page(number: int, page: RecognizedPage) -> dict[str, object]:
    layouts = [
        {
            "layout_id": f"{number}-{index}",
            "type": "text",
            "text": block.text,
            "position": [block.left, block.top, block.right - block.left, block.bottom - block.top],
        }
        for index, block in enumerate(page.blocks)
    ]
    return {
        "page_id": f"page-{number}",
        "page_num": number,
        "page_angle": 0,
        "text": page.text,
        "layouts": layouts,
    }
