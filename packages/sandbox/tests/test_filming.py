import importlib.util
import io
from importlib import import_module
from typing import Any

import httpx
import pytest

from coatcheck_sandbox import (
    Camera,
    EncoderMissing,
    FilmOrder,
    SandboxServer,
    State,
    describe,
    film_upload,
    order_of,
    sketch,
)

ORDER = FilmOrder(prompt="a coat on a hook, swaying — 外套", seconds=0.5, width=160, height=90, fps=8, seed=3)


def probed(content: bytes) -> dict[str, Any]:
    """What a player would find in a file."""
    av = import_module("av")
    with av.open(io.BytesIO(content)) as container:
        stream = container.streams.video[0]
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
        return {
            "codec": stream.codec_context.name,
            "size": (stream.codec_context.width, stream.codec_context.height),
            "frames": len(frames),
            "rate": int(stream.average_rate),
            "moves": any((frame != frames[0]).any() for frame in frames),
        }


def test_a_video_can_be_played() -> None:
    """As H.264 in MP4, of the size and length that were ordered, and something moves."""
    film = Camera()(ORDER)
    assert probed(film.content) == {
        "codec": "h264",
        "size": (160, 90),
        "frames": 4,
        "rate": 8,
        "moves": True,
    }
    assert (film.seconds, film.media_type) == (0.5, "video/mp4")


def test_odd_sizes_and_long_videos_are_made_possible() -> None:
    """An encoder takes even sides, and nobody waits for an hour of video."""
    film = Camera()(FilmOrder(prompt="", seconds=9999, width=31, height=17, fps=1))
    assert (film.width, film.height, film.seconds) == (30, 16, 20.0)


def test_a_missing_encoder_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(EncoderMissing, match=r"coatcheck-sandbox\[video\]"):
        Camera()(ORDER)


def test_a_sketch_is_the_same_for_the_same_order() -> None:
    """And another for another."""
    assert sketch(ORDER) == sketch(ORDER)
    assert sketch(ORDER).content != sketch(FilmOrder(prompt="other")).content


@pytest.mark.parametrize(
    ("values", "order"),
    [
        ({}, FilmOrder(prompt="p")),
        (
            {"seconds": "5", "width": 640, "height": "360", "fps": 24, "seed": 7},
            FilmOrder(prompt="p", seconds=5, width=640, height=360, fps=24, seed=7),
        ),
        ({"seconds": "long", "width": -1, "height": None, "fps": "nan", "seed": "x"}, FilmOrder(prompt="p")),
    ],
)
def test_an_order_is_made_of_what_makes_sense(values: dict[str, Any], order: FilmOrder) -> None:
    """The rest is small and short."""
    assert order_of("p", **values) == order


def test_a_job_makes_a_video_that_can_be_fetched_in_parts() -> None:
    """From where one broke off, as long as it is the same."""
    with SandboxServer(recognizer=describe, filmer=sketch) as sandbox:
        job = sandbox.jobs.create(film_upload(ORDER))
        assert sandbox.jobs.wait_recognized(10)
        snapshot = sandbox.jobs.look_at(job)
        assert (snapshot.state, snapshot.recognition, snapshot.order) == (State.SUCCEEDED, None, ORDER)
        assert snapshot.film is not None
        content = snapshot.film.content
        url = f"{sandbox.url}/films/{job.job_id}.mp4"
        whole = httpx.get(url)
        assert (whole.content, whole.headers["content-type"]) == (content, "video/mp4")
        tag = whole.headers["etag"]
        part = httpx.get(url, headers={"range": "bytes=7-", "if-range": tag})
        assert (part.status_code, part.content) == (206, content[7:])
        assert part.headers["content-range"] == f"bytes 7-{len(content) - 1}/{len(content)}"
        other = httpx.get(url, headers={"range": "bytes=7-", "if-range": '"other"'})
        assert (other.status_code, other.content) == (200, content)
        beyond = httpx.get(url, headers={"range": f"bytes={len(content)}-"})
        assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{len(content)}")
        assert httpx.get(f"{sandbox.url}/films/nothing.mp4").status_code == 404
