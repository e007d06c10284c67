"""How commands fail: one clear line on standard error, and an exit code that scripts can go by."""

from __future__ import annotations

from enum import IntEnum

import click

__all__ = ["Exit", "Failure", "explain"]


class Exit(IntEnum):
    """What the command came to."""

    OK = 0
    FAILED = 1
    "What was asked for was tried, and did not come about."
    USAGE = 2
    "The command line or the configuration is wrong; nothing was tried."
    NOT_FOUND = 3
    "There is no such task, gate or plugin."
    UNSUCCESSFUL = 4
    "The task that was waited for ended, and not with a result."
    TIMED_OUT = 5
    "What was waited for did not come in time."
    UNAVAILABLE = 6
    "The store cannot be reached."
    INTERRUPTED = 130


class Failure(click.ClickException):
    """A command fails with one line and a code."""

    def __init__(self, message: str, code: Exit = Exit.FAILED) -> None:
        super().__init__(" ".join(message.split()))
        self.code = code

    @property
    def exit_code(self) -> int:  # type: ignore[override] # click has it as a class variable
        """What the process exits with."""
        return int(self.code)


def explain(error: Exception) -> Failure | None:
    """Return the failure that an error of coatcheck comes to; None for what nobody foresaw."""
    from coatcheck import errors  # noqa: PLC0415 - help and completion have no use for it

    codes: tuple[tuple[type[Exception], Exit], ...] = (
        (errors.TaskNotFound, Exit.NOT_FOUND),
        (errors.TaskUnsuccessful, Exit.UNSUCCESSFUL),
        (errors.WaitTimeout, Exit.TIMED_OUT),
        (errors.StoreUnavailable, Exit.UNAVAILABLE),
        (errors.InvalidTransition, Exit.FAILED),
        (errors.ConfigurationError, Exit.USAGE),
        (errors.InvalidParams, Exit.USAGE),
        (errors.RoutingError, Exit.USAGE),
        (errors.CoatcheckError, Exit.FAILED),
    )
    for kind, code in codes:
        if isinstance(error, kind):
            return Failure(str(error) or type(error).__name__, code)
    return None
