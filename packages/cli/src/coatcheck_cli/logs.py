"""What a process that goes on says of its work: lines with the time on standard error, or JSON for programs."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

__all__ = ["LEVELS", "JsonLines", "PlainLines", "set_up_logging"]

LEVELS = ("debug", "info", "warning", "error")
_TALKATIVE = ("alembic", "asyncio", "botocore", "httpcore", "httpx", "urllib3")
"""They tell much, among it URLs, which may hold signatures and tokens."""


class PlainLines(logging.Formatter):
    """A line for people: the time with its zone, the level, who says it in which process, and what."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s[%(process)d]: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's own
        """Return the time with its zone, to the millisecond."""
        return datetime.fromtimestamp(record.created).astimezone().isoformat(" ", "milliseconds")


class JsonLines(logging.Formatter):
    """A JSON object a line: ``time`` in UTC, ``level``, ``logger``, ``process``, ``message``, and ``error`` if any."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        told: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


def set_up_logging(level: str | None, *, as_json: bool) -> None:
    """Log to standard error from `level` on, by default "info".

    An app that has set up logging in its own code is left alone, unless the command line asks for something.
    """
    root = logging.getLogger()
    if level is None and not as_json and root.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else PlainLines())
    logging.basicConfig(level=(level or "info").upper(), handlers=[handler], force=True)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
