"""docling-serve.

Read from docling-serve 1.38.2 as it is on PyPI (its OpenAPI document, `app.py` and `auth.py`), and from its answers
on loopback. As there, a document that cannot be fetched makes a task that is a success, with a result that is a
failure. Callbacks are not sent.
"""

import hmac
from collections.abc import Mapping, Sequence
from typing import ClassVar

from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.fetching import fetch_upload
from coatcheck_sandbox.jobs import Snapshot, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol, read_json
from coatcheck_sandbox.recognize import Recognition, RecognizedPage

__all__ = ["DoclingProtocol"]

_STATUS_WORDS = {
    State.WAITING: "pending",
    State.IN_PROGRESS: "started",
    State.SUCCEEDED: "success",
    State.FAILED: "failure",
}
_FORMATS = ("md", "json", "html", "text", "doctags")
_OTHER_FORMATS = ("yaml", "html_split_page", "vtt", "doclang", "dclx", "chunks", "latex")
_OF_THE_DOCUMENT = "document_unreachable"
"""The code of failures that the server tells in the result, not of the task."""
_UNFINISHED = "Task result not found. Please wait for a completion status."


class DoclingProtocol(WireProtocol):
    """Speaks as a docling-serve with an API key does, under `/docling`."""

    prefix: ClassVar[str] = "/docling"
    routes: ClassVar[Mapping[str, Operation]] = {
        "POST /v1/convert/source/async": Operation.SUBMIT,
        "GET /v1/status/poll/{job_id}": Operation.QUERY,
        "GET /v1/result/{job_id}": Operation.RESULT,
    }

    def __init__(self, *, key: str = "sandbox-key") -> None:
        """Ask for `key`; with an empty one, as with the server's default, for nothing."""
        self._key = key

    def authorize(self, request: Request) -> None:
        """Compare the header with the key."""
        given = request.headers.get("x-api-key", "").strip()
        if self._key and not hmac.compare_digest(given.encode(), self._key.encode()):
            raise RequestRefused(401, "unauthorized", "Unauthorized")

    async def read_upload(self, request: Request) -> Upload:
        """The one http source; which formats are wanted is kept as the job's model."""
        body = await read_json(request)
        sources, options = body.get("sources"), body.get("options", {})
        if not isinstance(sources, list) or not sources:
            raise RequestRefused(422, "body.sources", "List should have at least 1 item after validation")
        if len(sources) > 1:
            raise RequestRefused(422, "body.sources", "the sandbox takes one source")
        source = sources[0]
        if not isinstance(source, dict) or source.get("kind") != "http":
            raise RequestRefused(422, "body.sources.0", "Unable to extract tag using discriminator 'kind'")
        url = str(source.get("url", ""))
        if not url.startswith(("http:", "https:")):
            raise RequestRefused(422, "body.sources.0.http.url", "URL scheme should be 'http' or 'https'")
        if not isinstance(options, dict):
            raise RequestRefused(422, "body.options", "Input should be a valid dictionary")
        formats, known = options.get("to_formats", ["md"]), (*_FORMATS, *_OTHER_FORMATS)
        if not isinstance(formats, list) or any(each not in known for each in formats):
            raise RequestRefused(422, "body.options.to_formats.0", f"Input should be one of {known}")
        _check_pages(options.get("page_range"))
        return await fetch_upload(url, model=",".join(formats))

    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The task, which is pending."""
        return Reply(body={**_task(snapshot), "task_position": 1})

    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The task; that its document could not be had is no failure of the task."""
        return Reply(body=_task(snapshot))

    def render_result(self, snapshot: Snapshot, request: Request) -> Reply:
        """The document, or why there is none."""
        failure = snapshot.failure
        if failure is not None and failure.code == _OF_THE_DOCUMENT:
            error = {
                "component_type": "user_input",
                "module_name": "",
                "error_message": failure.message,
                "category": "source_unavailable",
                "page_no": None,
            }
            return Reply(body=_result(snapshot, "failure", {}, [error]))
        recognition = snapshot.recognition
        if recognition is None:
            raise RequestRefused(404, "not_found", _UNFINISHED)
        contents: dict[str, object] = {
            "md": recognition.text,
            "text": recognition.text,
            "json": _document(snapshot.name, recognition),
        }
        wanted = snapshot.model.split(",")
        given = {name: value for name, value in contents.items() if name in wanted}
        return Reply(body=_result(snapshot, "success", given, []))

    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The detail: a list with a place for what is wrong in a request, else words."""
        detail: object = str(refusal)
        if refusal.status == 422:  # noqa: PLR2004 - the status of what does not fit the schema
            place = [int(each) if each.isdigit() else each for each in refusal.code.split(".")]
            detail = [{"type": "value_error", "loc": place, "msg": str(refusal)}]
        elif refusal.code == "task_not_found":
            detail = "Task not found."
        return Reply(status=refusal.status, body={"detail": detail})


def _check_pages(pages: object) -> None:
    if pages is None:
        return
    if not isinstance(pages, list) or len(pages) != 2 or not 1 <= pages[0] <= pages[1]:  # noqa: PLR2004
        message = "Value error, Invalid page range: start must be ≥ 1 and end must be ≥ start."
        raise RequestRefused(422, "body.options.page_range", message)


def _task(snapshot: Snapshot) -> dict[str, object]:
    failure = snapshot.failure
    of_the_document = failure is not None and failure.code == _OF_THE_DOCUMENT
    state = State.SUCCEEDED if of_the_document else snapshot.state
    body: dict[str, object] = {
        "task_id": snapshot.job_id,
        "task_type": "convert",
        "task_status": snapshot.status_word or _STATUS_WORDS[state],
        "task_position": None,
        "task_meta": None,
        "error_message": None,
        "failure": None,
    }
    if failure is not None and not of_the_document:
        body["error_message"] = "Internal processing error."
        body["failure"] = {
            "category": "internal",
            "message": failure.message,
            "retryable": False,
            "phase": "execution",
            "details": {},
        }
    return body


def _result(
    snapshot: Snapshot, status: str, contents: Mapping[str, object], errors: Sequence[object]
) -> dict[str, object]:
    return {
        "document": {
            "filename": snapshot.name,
            **{f"{name}_content": contents.get(name) for name in _FORMATS},
        },
        "status": status,
        "errors": errors,
        "processing_time": 0.0,
        "timings": {},
        "confidence": None,
    }


def _document(name: str, recognition: Recognition) -> dict[str, object]:
    """The document with a text for each block, its place measured from the page's lower left."""
    texts: list[dict[str, object]] = []
    for number, page in enumerate(recognition.pages, 1):
        for text, box in _placed(page):
            place = {"page_no": number, "bbox": box, "charspan": [0, len(text)]}
            reference = f"#/texts/{len(texts)}"
            texts.append({"self_ref": reference, "label": "text", "text": text, "prov": [place]})
    return {
        "schema_name": "DoclingDocument",
        "version": "1.10.0",
        "name": name,
        "body": {"self_ref": "#/body", "children": [{"$ref": each["self_ref"]} for each in texts]},
        "texts": texts,
        "pages": {
            str(number): {"page_no": number, "size": {"width": page.width, "height": page.height}}
            for number, page in enumerate(recognition.pages, 1)
        },
    }


def _placed(page: RecognizedPage) -> list[tuple[str, dict[str, object]]]:
    return [
        (
            block.text,
            {
                "l": block.left,
                "t": page.height - block.top,
                "r": block.right,
                "b": page.height - block.bottom,
                "coord_origin": "BOTTOMLEFT",
            },
        )
        for block in page.blocks
    ]
