"""Providers' status words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import TypedDict, Unpack

from coatcheck.errors import ConfigurationError
from coatcheck.results import QueryResult
from coatcheck.task import QueryParams

__all__ = ["JobState", "StatusMap"]


class JobState(StrEnum):
    """What a provider's status word means."""

    WAITING = "waiting"
    "Accepted, not begun."
    RUNNING = "running"
    "Begun."
    SUCCEEDED = "succeeded"
    "Done, with a result."
    FAILED = "failed"
    "Ended without one."
    CANCELED = "canceled"
    "Cancelled at the provider."


class _Hints(TypedDict, total=False):
    progress: float | None
    retry_after: timedelta | None
    next_params: QueryParams | None


class StatusMap:
    """Status words by what they mean; case and outer blanks don't count.

    Each argument is a string of words between blanks: ``StatusMap(waiting="waiting queued", ...)``.
    """

    def __init__(
        self,
        *,
        waiting: str = "",
        running: str = "",
        succeeded: str = "",
        failed: str = "",
        canceled: str = "",
    ) -> None:
        self._states: dict[str, JobState] = {}
        words = {
            JobState.WAITING: waiting,
            JobState.RUNNING: running,
            JobState.SUCCEEDED: succeeded,
            JobState.FAILED: failed,
            JobState.CANCELED: canceled,
        }
        for state, text in words.items():
            for word in text.casefold().split():
                if self._states.setdefault(word, state) is not state:
                    message = f"status word {word!r} cannot mean both {self._states[word]} and {state}"
                    raise ConfigurationError(message)

    @property
    def words(self) -> Mapping[str, JobState]:
        """Each word, case-folded, and what it means."""
        return dict(self._states)

    def state_of(self, word: str) -> JobState | None:
        """Return what `word` means, or None if it is not listed."""
        return self._states.get(word.strip().casefold())

    def ongoing(self, word: str, **hints: Unpack[_Hints]) -> QueryResult:
        """Return the answer for a word that is no end: waiting, running, or unlisted with its name."""
        match self.state_of(word):
            case JobState.WAITING:
                return QueryResult.waiting(provider_status=word, **hints)
            case JobState.RUNNING:
                return QueryResult.running(provider_status=word, **hints)
            case _:
                return QueryResult.unlisted(word, retry_after=hints.get("retry_after"))
