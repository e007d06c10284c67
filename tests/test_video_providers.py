"""One video of every provider, as the sandbox speaks their protocols, rendered for real and copied."""

import asyncio
import hashlib
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest

from coatcheck import App, ExponentialRetry
from coatcheck_handler_video import VideoHandler, VideoRequest, VideoResult
from coatcheck_sandbox import SandboxServer, TruncatedBody, describe
from coatcheck_sandbox.demo.programme import probe
from coatcheck_sandbox.demo.providers import VIDEO, make_handler

OWN_DOWNLOADS = frozenset({"video:openai", "video:openrouter", "video:vertex"})
"""Whose videos are behind the provider's own API, with credentials."""
NO_RATIO = frozenset({"video:minimax"})
"""Whose usual model has no choice of it."""
PROMPT = "a coat on a hook, swaying"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxServer]:
    """A provider of every kind, which really renders."""
    with SandboxServer(recognizer=describe) as server:
        yield server


@pytest.fixture(autouse=True)
def no_faults(sandbox: SandboxServer) -> None:
    """Begin without what another test has left."""
    sandbox.faults.clear()


def test_every_provider_is_tried() -> None:
    """Each that is offered."""
    plugin = import_module("coatcheck_handler_video.plugin")
    assert {each.key for each in plugin.coatcheck_handlers()} == set(VIDEO)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("key", sorted(VIDEO))
async def test_a_video_is_made_and_copied(key: str, sandbox: SandboxServer, tmp_path: Path) -> None:
    """Ordered once; the copy can be played, and is what the result says of it, though the first download broke off."""
    handler = make_handler(key, sandbox.url, capture=tmp_path / "videos")
    assert isinstance(handler, VideoHandler)
    handler.retry = ExponentialRetry(initial=timedelta(milliseconds=100), maximum=timedelta(milliseconds=500))
    handler.poll_floor = None
    sandbox.faults.add(TruncatedBody(operation="result" if key in OWN_DOWNLOADS else "download"))
    before = sandbox.created_jobs(PROMPT)
    async with App("memory://", [handler]) as app, app.worker(call_timeout=timedelta(seconds=25)):
        wanted = "aspect_ratio" in handler.supports and key not in NO_RATIO
        ratio = "16:9" if wanted else None  # some providers need one
        request = VideoRequest(prompt=PROMPT, aspect_ratio=ratio)
        task = await app.manager.submit(request, tracking_timeout=timedelta(minutes=10))
        result = await app.manager.result(task.id, VideoResult, timeout=timedelta(minutes=3))
    assert sandbox.created_jobs(PROMPT) == before + 1
    assert sandbox.faults.pending() == []
    (video,) = result.videos
    assert video.copy is not None
    path = Path(video.copy.location)
    content = await asyncio.to_thread(path.read_bytes)
    assert path == tmp_path / "videos" / f"{task.id}.mp4"
    assert (video.copy.size_bytes, video.copy.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    codec, frames, seconds = await asyncio.to_thread(probe, path)
    assert (codec, frames > 1, seconds > 0) == ("h264", True, True)
