"""Settings that describe an OCR service, for `coatcheck_handler_ocr.declared`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from attrs import field, fields, frozen

from coatcheck.errors import ConfigurationError
from coatcheck_http import HttpSettings, RequestTemplate, StatusMap, check_paths

__all__ = ["REQUEST_FIELDS", "DeclaredOcrSettings", "ErrorPaths", "ResultPaths", "Words", "way_of"]

REQUEST_FIELDS = (
    "url", "file_name", "pages", "languages", "outputs", "tables", "formulas", "model", "options",
)  # fmt: skip
"""The fields of `OcrRequest`, which are placeholders in `DeclaredOcrSettings.submit`."""
_TASK = ("task_id", "idempotency_key", "callback_url")
_TEXTS = ("markdown", "markdown_url", "archive_url", "jsonl_url", "text", "pages")


@frozen(kw_only=True)
class Words:
    """The service's status words by what they mean, with blanks between them; case doesn't count."""

    waiting: str = ""
    running: str = ""
    succeeded: str
    failed: str = ""
    canceled: str = ""

    def as_map(self) -> StatusMap:
        """Return the words as handlers use them.

        Raises:
            ConfigurationError: a word has two meanings.
        """
        return StatusMap(**{each.name: getattr(self, each.name) for each in fields(Words)})


@frozen(kw_only=True)
class ResultPaths:
    """Where the answer about a finished job has the text; paths as in ``data.text | text``."""

    markdown: str | None = None
    markdown_url: str | None = None
    archive_url: str | None = None
    """Of a ZIP with Markdown in it."""
    jsonl_url: str | None = None
    """Of a file with one page a line, as JSON."""
    text: str | None = None
    pages: str | None = None
    """A list with one item for each page."""
    page_text: str = "markdown | text | content"
    """Where an item of `pages` has its text."""
    usage: str | None = None
    """An object, kept as it is."""


@frozen(kw_only=True)
class ErrorPaths:
    """Where answers tell what went wrong; paths as in ``error.code | code``."""

    code: str = "error.code | error.type | code | error_code | error"
    message: str = "error.message | message | error_msg | msg | detail | error"
    success: str | None = None
    """For services that put errors into good answers (HTTP 200): what is here says whether it is one."""
    success_values: tuple[str, ...] = ("0", "200", "ok", "OK", "true", "True", "success")
    """What is at `success` in an answer without an error."""


@frozen(kw_only=True)
class DeclaredOcrSettings(HttpSettings):
    """Settings of `DeclaredOcr`: all that it knows of the service."""

    submit: RequestTemplate
    """Creates a job. Placeholders are the fields of `OcrRequest`, `task_id`, `idempotency_key`, `callback_url`."""
    id: str = "id"
    """Where the answer to it has the job's id."""
    keep: Mapping[str, str] = field(factory=dict)
    """What else to remember from that answer, as paths by name, for the other requests: ``{keep.region}``."""
    query: RequestTemplate
    """Asks for a job. Placeholders are `id` and `keep`."""
    status: str = "status"
    """Where the answer to it has the status word."""
    words: Words
    progress: str | None = None
    """Where it has how far the job is, from 0 to 1."""
    result: ResultPaths
    fetch: RequestTemplate | None = None
    """Fetches the result of a finished job, if the query doesn't bring it; `result` is about its answer then."""
    cancel: RequestTemplate | None = None
    """Cancels a job; None if the service cannot."""
    callback_id: str | None = None
    """Where a callback's body has the job's id; None if there are no callbacks."""
    errors: ErrorPaths = field(factory=ErrorPaths)
    authentication: str = "bearer"
    """How the account's key is sent: ``bearer``, ``header X-Api-Key``, ``query key``, or ``none``."""
    poll_floor: timedelta | None = None
    """How long to wait at least between two queries of one job."""

    def __attrs_post_init__(self) -> None:
        """Refuse what can never work; the message leads to the place.

        Raises:
            ConfigurationError: a template has an unknown placeholder, a path is none, a word has two meanings,
                `authentication` is none of the ways, or no path leads to a text.
        """
        HttpSettings.__attrs_post_init__(self)
        self.submit.check((*REQUEST_FIELDS, *_TASK), where="submit")
        for name in ("query", "fetch", "cancel"):
            template: RequestTemplate | None = getattr(self, name)
            if template is not None:
                template.check(("id", "keep"), where=name)
                if template.file_field is not None:
                    raise ConfigurationError(f"{name}.file_field: only submit sends the document")
        for where, text in self._paths():
            check_paths(text, where=where)
        self.words.as_map()
        if not self.words.succeeded.split():
            raise ConfigurationError("words.succeeded names no word, so no job could ever be done")
        if not any(getattr(self.result, each.name) for each in fields(ResultPaths) if each.name in _TEXTS):
            message = f"result has no path to the text; give one of {', '.join(_TEXTS)}"
            raise ConfigurationError(message)
        way_of(self.authentication)

    def _paths(self) -> list[tuple[str, str | None]]:
        found: list[tuple[str, str | None]] = [
            (name, getattr(self, name)) for name in ("id", "status", "progress", "callback_id")
        ]
        found += [(f"keep.{name}", path) for name, path in self.keep.items()]
        for owner, kind in (("result", ResultPaths), ("errors", ErrorPaths)):
            found += [
                (f"{owner}.{each.name}", getattr(getattr(self, owner), each.name))
                for each in fields(kind)
                if each.name != "success_values"
            ]
        return found


def way_of(text: str) -> tuple[str, str]:
    """Return the way and the name of ``header X-Api-Key``.

    Raises:
        ConfigurationError: it is none of the ways.
    """
    way, _, name = text.partition(" ")
    if (way in {"bearer", "none"} and not name) or (way in {"header", "query"} and name.strip()):
        return way, name.strip()
    message = (
        f"authentication is {text!r}; possible are 'bearer', 'none', 'header' and the header's name, "
        "'query' and the parameter's name"
    )
    raise ConfigurationError(message)
