"""How tasks and what is in them are put into words, and what options of several commands have in common."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from coatcheck_cli.failing import Exit, Failure
from coatcheck_cli.output import duration_text

if TYPE_CHECKING:
    from coatcheck import Task

__all__ = [
    "PLACEHOLDER",
    "STATUSES",
    "as_written",
    "confirmed",
    "error_text",
    "json_argument",
    "login_name",
    "masked",
    "one_line",
    "positive",
    "since",
    "somebody_is_there",
    "summary",
]

STATUSES = (
    "PENDING_SUBMIT",
    "SUBMITTING",
    "SUBMITTED",
    "RUNNING",
    "SUCCEEDED",
    "FAILED",
    "CANCELED",
    "TRACKING_TIMED_OUT",
    "SUBMIT_UNKNOWN",
)
"""The names of `coatcheck.Status`, which help need not import for them; the last five are ends."""
PLACEHOLDER = "EXTERNAL_ID"
"""What stands for the provider's id in a command that a person completes."""
HIDDEN = "***"
LONGEST_SUMMARY = 600
"""Characters of a value that a person is shown."""
_NAMES = (
    r"authorization|(?:set-)?cookie|api[-_]?key|secret(?:[-_]key)?|passw(?:or)?d|passphrase|jwt|credentials?|token"
    r"|sig|sign|signature|awsaccesskeyid|ossaccesskeyid"
)
"""What credentials are called."""
_SECRET_NAME = re.compile(rf"(?:.*[-_.])?(?:{_NAMES})", re.IGNORECASE)
_IN_QUERY = re.compile(rf"(?i)([?&;](?:[\w.-]*[-_.])?(?:{_NAMES})=)[^&#;\s]+")
_PASSWORD = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{0,20}://[^\s/?#:@]{0,200}):[^\s/?#@]+@")
_DAY, _HOUR = 86_400, 3600


def one_line(text: str, limit: int | None = None) -> str:
    """Return text of others on one line, without what would move a cursor; cut at `limit` characters."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return line if limit is None or len(line) <= limit else f"{line[: limit - 1]}…"


def masked(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return JSON with what is named like a credential, and the signed parts of URLs, as ``***``."""
    if isinstance(value, Mapping):
        return {
            name: HIDDEN if isinstance(each, str) and each and _SECRET_NAME.fullmatch(name) else masked(each)
            for name, each in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [masked(each) for each in value]
    if isinstance(value, str):
        return _PASSWORD.sub(rf"\1:{HIDDEN}@", _IN_QUERY.sub(rf"\1{HIDDEN}", value))
    return value


def summary(value: object, *, limit: int = LONGEST_SUMMARY) -> str:
    """Return JSON for a person: masked, on one line, and cut where it is long, saying how long it is."""
    text = one_line(json.dumps(masked(_said(value)), ensure_ascii=False))
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text):,} characters in all; --json prints them)"


def _said(value: object) -> object:
    """Return an object without the members that say nothing: those are many in params, and all at their default."""
    if not isinstance(value, Mapping):
        return value
    return {name: each for name, each in value.items() if each is not None and each not in ("", {}, [])}


def error_text(task: Task, limit: int | None = None) -> str | None:
    """Return the error of a task, or its last one, as code and message."""
    if task.error is None:
        return None
    provider = f" ({task.error.provider_code})" if task.error.provider_code else ""
    return one_line(f"{task.error.code}{provider}: {task.error.message}", limit)


def since(at: datetime, now: datetime) -> str:
    """Return how long ago something was, or how far off it is, in one or two units."""
    seconds = abs(now - at).total_seconds()
    step = _HOUR if seconds >= _DAY else 60 if seconds >= _HOUR else 1
    text = duration_text(timedelta(seconds=seconds // step * step))
    return f"{text} ago" if at <= now else f"in {text}"


def as_written(document: object) -> str:
    """Return JSON as one writes it on a command line."""
    return json.dumps(document, ensure_ascii=False)


def login_name() -> str | None:
    """Return who is at the keyboard, as far as the system knows."""
    import getpass  # noqa: PLC0415 - help has no use for it

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container whose user has no name
        return None


def positive(ctx: click.Context, param: click.Parameter, value: timedelta | None) -> timedelta | None:
    """Refuse a duration that no deadline could be made of."""
    from coatcheck.task import LONGEST  # noqa: PLC0415 - help has no use for it

    if value is None or timedelta() < value <= LONGEST:
        return value
    message = f"{duration_text(value)} is not between 0 and {LONGEST.days}d; write a duration such as 30m"
    raise click.BadParameter(message, ctx, param)


def json_argument(text: str, what: str) -> Any:  # noqa: ANN401 - JSON
    """Return the value of a JSON text from the command line.

    Raises:
        Failure: it is none; the message begins with `what`.
    """
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        why = error if isinstance(error, ValueError) else "it is nested too deeply"
        message = f"{what} is not JSON: {why}; it begins {one_line(text, 40)!r}"
        raise Failure(message, Exit.USAGE) from error


def _no_number(name: str) -> object:
    message = f"{name} is no number in JSON"
    raise ValueError(message)


def confirmed(question: str, *, yes: bool) -> None:
    """Return once somebody has said yes: on the command line, or when asked in a terminal.

    Raises:
        Failure: nobody has; nothing was changed.
    """
    if yes:
        return
    if not somebody_is_there():
        message = f"{question} Nobody can be asked here: say --yes. Nothing was changed"
        raise Failure(message, Exit.USAGE)
    if not click.confirm(question, err=True):
        raise Failure("nothing was changed", Exit.FAILED)


def somebody_is_there() -> bool:
    """Return whether questions reach a person."""
    return sys.stdin.isatty()
