"""PaddleOCR's official job API, at AI Studio, with documents by URL.

Read in 2026 from PaddlePaddle/PaddleOCR (`paddleocr/_api_client`) and ai.baidu.com/ai-doc/AISTUDIO/fml7mozw5; no live
calls were made. The codes in error bodies, which repeat the HTTP status, are the sandbox's choice.
"""

import hmac
import json
from collections.abc import Mapping
from typing import ClassVar

from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.fetching import fetch_upload
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json
from coatcheck_sandbox.recognize import RecognizedPage

__all__ = ["PaddleOcrProtocol"]

_STATE_WORDS = {
    State.WAITING: "pending",
    State.IN_PROGRESS: "running",
    State.SUCCEEDED: "done",
    State.FAILED: "failed",
    State.CANCELED: "failed",
}


class PaddleOcrProtocol(WireProtocol):
    """Speaks as `https://paddleocr.aistudio-app.com` does, under `/paddleocr`."""

    prefix: ClassVar[str] = "/paddleocr"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /api/v2/ocr/jobs": Operation.SUBMIT,
        "GET /api/v2/ocr/jobs/{job_id}": Operation.QUERY,
        "GET /results/{job_id}/result.jsonl": Operation.RESULT,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        self._key = key

    def authorize(self, request: Request) -> None:
        """Compare the bearer token with the key; links of results are presigned."""
        if request.url.path.startswith(f"{self.prefix}/results/"):
            return
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._key}".encode()):
            raise RequestRefused(401, "unauthorized", "the token is missing or wrong")

    async def read_upload(self, request: Request) -> Upload:
        """The document at `fileUrl`."""
        body = await read_json(request)
        url, model = body.get("fileUrl"), body.get("model")
        if not isinstance(url, str) or not url or not isinstance(model, str) or not model:
            raise RequestRefused(400, "invalid_parameter", "fileUrl and model are required")
        if not isinstance(body.get("optionalPayload", {}), dict):
            raise RequestRefused(400, "invalid_parameter", "optionalPayload must be an object")
        return await fetch_upload(url, model=model)

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The envelope with the id."""
        return _good({"jobId": snapshot.job_id})

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The state and its progress; with a link once the job is done."""
        pages = 1 if snapshot.recognition is None else len(snapshot.recognition.pages)
        data: dict[str, object] = {
            "jobId": snapshot.job_id,
            "state": snapshot.status_word or _STATE_WORDS[snapshot.state],
            "errorMsg": None if snapshot.failure is None else snapshot.failure.message,
        }
        if snapshot.state in {State.IN_PROGRESS, State.SUCCEEDED}:
            data["extractProgress"] = {
                "totalPages": pages,
                "extractedPages": 0 if snapshot.recognition is None else pages,
                "startTime": f"{snapshot.created_at:%Y-%m-%d %H:%M:%S}",
            }
        if snapshot.recognition is not None:
            url = f"{self.served_at(request)}/results/{snapshot.job_id}/result.jsonl"
            data["resultUrl"] = {"jsonUrl": url}
        return _good(data)

    def render_result(self, snapshot: Snapshot, request: Request) -> Reply:
        """A line for each page, in the shape that goes with the model."""
        if snapshot.recognition is None:
            raise RequestRefused(404, "not_found", "there is no result yet")
        render = _text_line if snapshot.model.startswith("PP-OCR") else _parsed_line
        lines = [json.dumps({"result": render(page)}) for page in snapshot.recognition.pages]
        return Reply(body="\n".join(lines).encode(), media_type="application/jsonl")

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The error envelope."""
        return Reply(status=refusal.status, body={"code": refusal.status, "msg": str(refusal), "data": None})


def _good(data: object) -> Reply:
    return Reply(body={"code": 0, "msg": "Success", "data": data})


def _boxes(page: RecognizedPage) -> list[list[float]]:
    return [[each.left, each.top, each.right, each.bottom] for each in page.blocks]


def _parsed_line(page: RecognizedPage) -> dict[str, object]:
    blocks = [
        {"block_label": "text", "block_content": block.text, "block_bbox": box}
        for block, box in zip(page.blocks, _boxes(page), strict=True)
    ]
    pruned = {"width": page.width, "height": page.height, "parsing_res_list": blocks}
    parsed = {"markdown": {"text": page.text, "images": {}}, "outputImages": {}, "prunedResult": pruned}
    return {"layoutParsingResults": [parsed]}


def _text_line(page: RecognizedPage) -> dict[str, object]:
    pruned = {"rec_texts": [each.text for each in page.blocks], "rec_boxes": _boxes(page)}
    return {"ocrResults": [{"prunedResult": pruned, "ocrImage": None}]}
