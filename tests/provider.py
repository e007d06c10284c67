"""The real handler of the sandbox's OCR provider, as the tests across packages use it, and what goes wrong in it."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from coatcheck import CancelContext, ExponentialRetry, QueryContext, QueryParams, QueryResult, SubmitResult
from coatcheck_handler_ocr import ApiKey, GiteeOcr, HttpSettings, OcrRequest
from coatcheck_http import HttpRequest, HttpResponse, PreparedContext, segment

if TYPE_CHECKING:
    from coatcheck_sandbox import LoggedRequest, SandboxServer

HOUR = timedelta(hours=1)
PAGE = "foxes.png"
"""The smallest page that the sandbox serves."""
QUICK = ExponentialRetry(initial=timedelta(milliseconds=50), maximum=timedelta(milliseconds=300))
"""For workers that run by the host's clock."""


def handler_of(
    provider_url: str, *, kind: type[GiteeOcr] = GiteeOcr, key: str | None = None, **settings: Any
) -> GiteeOcr:
    """Return the handler of the sandbox at `provider_url`; `settings` are those of `HttpSettings`."""
    return kind(ApiKey("sandbox-key"), key=key, settings=_settings(provider_url, **settings))


def _settings(provider_url: str, **settings: Any) -> HttpSettings:
    return HttpSettings(base_url=f"{provider_url}/gitee/v1", allow_private=True, **settings)


def document(provider_url: str, name: str = "a.png", *, page: str = PAGE) -> OcrRequest:
    """Return a request to read `page`, which the provider will know as the document `name`."""
    return OcrRequest(url=f"{provider_url}/pages/{page}", file_name=name)


def cancels(sandbox: "SandboxServer") -> "list[LoggedRequest]":
    """Return the requests that asked the provider to cancel."""
    return [each for each in sandbox.requests if each.method == "DELETE"]


class CancellingOcr(GiteeOcr):
    """Asks to cancel, which the real provider does not offer: the sandbox logs the request, and refuses."""

    def build_cancel(self, params: QueryParams, context: CancelContext) -> HttpRequest:
        """Delete the job."""
        return HttpRequest(method="DELETE", url=f"/task/{segment(params.external_task_id)}")


class StagedOcr(CancellingOcr):
    """Does what a test says at a point of its work, synchronously, as when its process is stopped there."""

    def __init__(
        self, provider_url: str, *, at: str, act: Callable[[], None], key: str = GiteeOcr.key
    ) -> None:
        """Call `act` at the end of the method `at`: `build_submit`, `parse_submit` or `parse_query`."""
        super().__init__(ApiKey("sandbox-key"), key=key, settings=_settings(provider_url))
        self._at, self._act = at, act

    def build_submit(self, params: OcrRequest, context: PreparedContext) -> HttpRequest:
        """The document is downloaded, and nothing is sent yet."""
        request = super().build_submit(params, context)
        self._reach("build_submit")
        return request

    def parse_submit(
        self, response: HttpResponse, params: OcrRequest, context: PreparedContext
    ) -> SubmitResult:
        """The provider has answered with the id, which is not saved yet."""
        answer = super().parse_submit(response, params, context)
        self._reach("parse_submit")
        return answer

    def parse_query(self, response: HttpResponse, params: QueryParams, context: QueryContext) -> QueryResult:
        """The provider has said how the job is, which is not saved yet."""
        answer = super().parse_query(response, params, context)
        self._reach("parse_query")
        return answer

    def _reach(self, point: str) -> None:
        if point == self._at:
            self._act()
