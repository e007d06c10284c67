from datetime import timedelta

import pytest

from coatcheck.errors import ConfigurationError
from coatcheck.results import Verdict
from coatcheck.task import Status
from coatcheck_http import JobState, StatusMap

WORDS = StatusMap(waiting="queued PENDING", running="running", succeeded="done", failed="0", canceled="gone")


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("Queued", JobState.WAITING),
        (" pending ", JobState.WAITING),
        ("RUNNING", JobState.RUNNING),
        ("done", JobState.SUCCEEDED),
        ("0", JobState.FAILED),
        ("gone", JobState.CANCELED),
        ("aborted", None),
        ("", None),
    ],
)
def test_case_and_blanks_do_not_count(word: str, state: JobState | None) -> None:
    """A word means what the table says, and an unlisted one nothing."""
    assert WORDS.state_of(word) is state


def test_words_that_are_no_end_become_answers() -> None:
    """Waiting, running, or unlisted by name; hints come along."""
    second = timedelta(seconds=1)
    waiting = WORDS.ongoing("Queued", retry_after=second)
    assert (waiting.status, waiting.provider_status, waiting.retry_after) == (
        Status.SUBMITTED,
        "Queued",
        second,
    )
    assert WORDS.ongoing("running", progress=0.5).progress == 0.5
    assert WORDS.ongoing("expired").verdict is Verdict.UNLISTED


def test_a_word_has_one_meaning() -> None:
    """A table that contradicts itself is refused when it is made."""
    with pytest.raises(ConfigurationError, match="'done'"):
        StatusMap(running="done", succeeded="DONE")
    assert WORDS.words["pending"] is JobState.WAITING
