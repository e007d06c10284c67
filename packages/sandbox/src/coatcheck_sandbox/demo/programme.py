"""What is played in the demo: pages that are read, or videos that are made, and how to tell that they are right."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from attrs import field, frozen

from coatcheck import Status, Task
from coatcheck_sandbox import pages
from coatcheck_sandbox.demo.providers import OCR, VIDEO, make_handler, provided
from coatcheck_sandbox.server import SandboxServer
from coatcheck_sandbox.similarity import character_accuracy

__all__ = ["REQUIRED_ACCURACY", "Filming", "Programme", "Reading", "Verdict", "probe", "programme"]

REQUIRED_ACCURACY = 0.90


@frozen(kw_only=True)
class Verdict:
    """What came of one piece."""

    piece: str
    task: Task
    text: str
    """What to show of the result."""
    measured: str
    """How right it is, in words."""
    right: bool
    creating_requests: int

    @property
    def good(self) -> bool:
        """Whether it is as it should be, and was paid for once."""
        return self.task.status is Status.SUCCEEDED and self.creating_requests == 1 and self.right


class Programme(ABC):
    """What is submitted, and what it has to come to."""

    key: str
    """The handler's."""
    what: ClassVar[str]
    """What the pieces are, in the plural."""
    measure: ClassVar[str]
    """What is measured of each."""
    promise: ClassVar[str]
    """What holds of all, if all is well."""

    @abstractmethod
    def pieces(self, sandbox: SandboxServer) -> Mapping[str, object]:
        """The params to submit, by what the provider calls the document."""

    @abstractmethod
    def measured(self, piece: str, task: Task) -> tuple[str, str, bool]:
        """What to show of the result of a task, how right it is in words, and whether that will do."""

    def judge(self, sandbox: SandboxServer, piece: str, task: Task) -> Verdict:
        """What came of a piece."""
        text, measured, right = self.measured(piece, task)
        return Verdict(
            piece=piece,
            task=task,
            text=text,
            measured=measured,
            right=right,
            creating_requests=sandbox.creating_requests(piece),
        )


@frozen(kw_only=True)
class Reading(Programme):
    """Scanned pages through an OCR provider."""

    what: ClassVar[str] = "scanned pages"
    measure: ClassVar[str] = "characters right"
    promise: ClassVar[str] = f"every page at least {REQUIRED_ACCURACY:.0%} right"

    key: str = "ocr:gitee"

    def pieces(self, sandbox: SandboxServer) -> Mapping[str, object]:
        """A request for each page that is shipped."""
        request = import_module("coatcheck_handler_ocr").OcrRequest
        place = provided(self.key).pages.replace("{url}", sandbox.url)
        return {name: request(url=f"{place}{name}") for name in pages.names()}

    def measured(self, piece: str, task: Task) -> tuple[str, str, bool]:
        """The text, and how much of it is right."""
        text = ""
        if task.status is Status.SUCCEEDED and isinstance(task.result, dict):
            text = str(task.result.get("text") or task.result.get("markdown") or "")
        accuracy = character_accuracy(text, pages.truth(piece))
        return text, f"{accuracy:.1%}", accuracy >= REQUIRED_ACCURACY


@frozen(kw_only=True)
class Filming(Programme):
    """Videos from prompts, copied before their links expire."""

    what: ClassVar[str] = "videos"
    measure: ClassVar[str] = "the file"
    promise: ClassVar[str] = "every video can be played"

    key: str = "video:volcengine"
    folder: Path
    """Where the copies go."""
    prompts: Sequence[str] = field(
        default=(
            "a coat on a hook, swaying",
            "a ticket with the number 42",
            "rain on the window of a cloakroom",
            "a queue of umbrellas, seen from above",
        )
    )

    def pieces(self, sandbox: SandboxServer) -> Mapping[str, object]:
        """A request for each prompt."""
        request = import_module("coatcheck_handler_video").VideoRequest
        supports: Any = make_handler(self.key, sandbox.url).supports  # type: ignore[attr-defined] # of video handlers
        wanted = {"duration": timedelta(seconds=5), "aspect_ratio": "16:9"}
        asked = {name: value for name, value in wanted.items() if name in supports}
        return {prompt: request(prompt=prompt, **asked) for prompt in self.prompts}

    def measured(self, piece: str, task: Task) -> tuple[str, str, bool]:
        """Where the copy is, and what a player finds in it."""
        copy = _copy_of(task)
        if copy is None:
            return "", "no copy", False
        path = Path(str(copy["location"]))
        codec, frames, seconds = probe(path)
        size = path.stat().st_size
        right = codec == "h264" and frames > 1 and size == copy["size_bytes"]
        return f"{path}", f"{codec}, {frames} frames, {seconds:.1f} s, {size // 1024} KiB", right


def _copy_of(task: Task) -> Mapping[str, Any] | None:
    if task.status is not Status.SUCCEEDED or not isinstance(task.result, dict):
        return None
    videos: Any = task.result.get("videos") or [{}]
    found: Mapping[str, Any] | None = videos[0].get("copy")
    return found


def probe(path: Path) -> tuple[str, int, float]:
    """The codec, the number of frames and the seconds of a video, read to its end."""
    av: Any = import_module("av")
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = sum(1 for _ in container.decode(stream))
        return str(stream.codec_context.name), frames, frames / float(stream.average_rate)


def programme(key: str, folder: Path) -> Programme:
    """The programme for the handler with this key.

    Raises:
        ConfigurationError: the demo does not know it.
    """
    provided(key)
    return Filming(key=key, folder=folder) if key in VIDEO and key not in OCR else Reading(key=key)
