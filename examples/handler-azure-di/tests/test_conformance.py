"""The handler against the conformance kit, and the distribution as it is installed."""

from datetime import timedelta
from typing import Any

import pytest
from coatcheck_handler_azure_di.handler import AnalyzeRequest

from coatcheck_conformance import (
    HandlerConformance,
    HandlerSpec,
    Means,
    PluginConformance,
    PluginSpec,
    Reply,
    Script,
)
from coatcheck_http import ApiKey, HttpSettings

JOB = "3b31320d-8bab-4f88-b19c-2322a7f11034"
MODEL = "{server}/documentintelligence/documentModels/prebuilt-layout"
LOCATION = f"{MODEL}/analyzeResults/{JOB}?api-version=2024-11-30"
CORRUPTED = "The file is corrupted, or in no supported format."
TIMES = {"createdDateTime": "2026-03-02T10:00:00Z", "lastUpdatedDateTime": "2026-03-02T10:00:04Z"}
RESULT = {
    "apiVersion": "2024-11-30",
    "modelId": "prebuilt-layout",
    "stringIndexType": "unicodeCodePoint",
    "contentFormat": "markdown",
    "content": "# Invoice\n\nTotal: 12 €",
    "pages": [
        {"pageNumber": 1, "width": 8.5, "height": 11, "unit": "inch", "spans": [{"offset": 0, "length": 22}]}
    ],
}


def error(message: str, code: str = "UnexpectedError", inner: str = "Unexpected") -> dict[str, Any]:
    """Return the body of an error."""
    innererror = {"code": inner, "message": message}
    return {"error": {"code": code, "message": "The request failed.", "innererror": innererror}}


def status(word: str) -> dict[str, Any]:
    """Return the answer to a query of an operation in this state."""
    answer: dict[str, Any] = {"status": word, **TIMES}
    if word in {"succeeded", "completed"}:
        answer["analyzeResult"] = RESULT
    if word in {"failed", "skipped"}:
        answer |= error(CORRUPTED, "InvalidRequest", "InvalidContent")
    return answer


SCRIPT = Script(
    job=JOB,
    accepted=Reply.of(b"", status=202, headers={"operation-location": LOCATION}),
    status=status,
    words={
        "notStarted": Means.WAITING,
        "running": Means.RUNNING,
        "succeeded": Means.SUCCEEDED,
        "completed": Means.SUCCEEDED,
        "failed": Means.FAILED,
        "skipped": Means.FAILED,
        "canceled": Means.CANCELED,
    },
    rejected=Reply.of(error(CORRUPTED, "InvalidRequest", "InvalidContent"), status=400),
    rate_limited=Reply.of(
        {"error": {"code": "429", "message": "Requests have exceeded the call rate."}}, status=429
    ),
    not_found=Reply.of(error("There is no such operation.", "NotFound", "OperationNotFound"), status=404),
    error=error,
    done_without_result=Reply.of({"status": "succeeded", **TIMES}),
)


def settings(url: str) -> HttpSettings:
    """Return settings with which a rule takes no longer than it must."""
    return HttpSettings(base_url=url, read_timeout=timedelta(seconds=2), max_answer_bytes=2**20)


SPEC = HandlerSpec(
    "coatcheck_handler_azure_di.handler:AzureDiHandler",
    key="ocr:azure-di",
    params=lambda url: AnalyzeRequest(url=f"{url}/invoice.pdf", pages="1-3", features=("formulas",)),
    settings=settings,
    accounts={"default": ApiKey("key-of-the-first"), "other": ApiKey("key-of-the-second")},
    script=SCRIPT,
    answer_limit_bytes=2**21,
)


class TestAzureDiHandler(HandlerConformance):
    """Every promise of the handler contract."""

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """Return how to make the handler."""
        return SPEC


class TestAzureDiPlugin(PluginConformance):
    """Every promise of the plugin contract."""

    @pytest.fixture
    def plugin_spec(self) -> PluginSpec:
        """Return which distribution is tried."""
        settings = {"base_url": "https://my-resource.cognitiveservices.azure.com"}
        return PluginSpec("coatcheck-handler-azure-di", settings={"ocr:azure-di": settings})
