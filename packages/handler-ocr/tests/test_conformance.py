from datetime import timedelta
from pathlib import Path

import pytest

from coatcheck.task import JSON
from coatcheck_conformance import HandlerConformance, HandlerSpec, Means, Reply, Script
from coatcheck_handler_ocr import ApiKey, GiteeOcr, GiteeOcrSettings, OcrRequest
from coatcheck_http import JobState

MIB = 1024 * 1024


def status(word: str) -> JSON:
    """Return a job with this status word; its text is behind a link."""
    return {"task_id": "g1", "status": word, "output": {"markdown_url": "{server}/files/full.md"}}


def settings(url: str) -> GiteeOcrSettings:
    """Return settings with short times and small limits."""
    return GiteeOcrSettings(
        base_url=url, read_timeout=timedelta(seconds=1), max_answer_bytes=2 * MIB, allow_private=True
    )


def gitee_spec(_folder: Path | None = None) -> HandlerSpec:
    """Return the provider as its documentation describes it; the command `coatcheck-conformance` takes it, too."""
    return HandlerSpec(
        "coatcheck_handler_ocr.gitee:GiteeOcr",
        key="ocr:gitee",
        params=lambda url: OcrRequest(url=f"{url}/files/scan.pdf"),
        settings=settings,
        accounts={"default": ApiKey("gitee-key-of-one"), "other": ApiKey("gitee-key-of-another")},
        script=Script(
            job="g1",
            accepted=Reply.of({"task_id": "g1", "status": "waiting", "urls": {"get": "{server}/v1/task/g1"}}),
            status=status,
            words={word: Means(state) for word, state in GiteeOcr.statuses.words.items()},
            done_without_result=Reply.of({"task_id": "g1", "status": "success", "output": None}),
            served={"/files/scan.pdf": b"%PDF", "/files/full.md": b"# From the link"},
        ),
        answer_limit_bytes=4 * MIB,
    )


class TestGiteeOcr(HandlerConformance):
    """The handler of Gitee AI keeps every promise."""

    require = ("account", "two accounts", "document fields", "nested fields", "answer without a result")

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """The provider as its documentation describes it."""
        return gitee_spec()


def test_words_mean_the_same_to_the_kit() -> None:
    """The kit's meanings are those of a StatusMap."""
    assert {each.value for each in Means} == {each.value for each in JobState}
