import hashlib
from collections.abc import AsyncIterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest
from attrs import evolve

from coatcheck.errors import ConfigurationError, InvalidParams, QueryFailed
from coatcheck.handler import QueryContext, params_type_of
from coatcheck.results import QueryResult, Verdict
from coatcheck.task import QueryParams
from coatcheck_handler_video import (
    ApiKey,
    CaptureSettings,
    Copy,
    Video,
    VideoHandler,
    VideoMode,
    VideoRequest,
    VideoResult,
    VideoSettings,
    whole_seconds,
)
from coatcheck_http import HttpRequest, HttpResponse, HttpSettings, PreparedContext, StatusMap, first_text
from coatcheck_http.testing import Claim, Ending, Reply, ScriptedServer

URL = "https://files.example.com/a.png"
CONTENT = b"the content of a video " * 1000
JOB = QueryParams(external_task_id="v1")


class Studio(VideoHandler):
    """A provider of the usual shape."""

    key = "video:studio"
    default_base_url = "https://studio.example.com"
    default_model = "slow"
    modes = frozenset({VideoMode.TEXT, VideoMode.FIRST_FRAME, VideoMode.AUDIO_DRIVEN})
    supports = frozenset({"duration", "model"})
    statuses = StatusMap(running="filming", succeeded="filmed")

    def modes_of(self, model: str | None) -> frozenset[VideoMode]:
        """The fast one takes no image."""
        return frozenset({VideoMode.TEXT}) if model == "fast" else self.modes

    def build_submit(self, params: VideoRequest, context: PreparedContext) -> HttpRequest:
        """Hand the prompt on."""
        return HttpRequest.post("/films", json={"prompt": params.prompt, "model": self.model_of(params)})

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> VideoResult | QueryResult | None:
        """Return the videos at `url` and `second`."""
        urls = [first_text(response.json(), name) for name in ("url", "second")]
        videos = tuple(Video(url=each, content_type="video/mp4") for each in urls if each)
        return VideoResult(videos=videos, warnings=("grainy",)) if videos else None


def test_every_video_handler_takes_the_same_params() -> None:
    """So that a selector can choose among them."""
    assert params_type_of(Studio) is VideoRequest


@pytest.mark.parametrize(
    ("settings", "model", "found"),
    [
        (None, None, "slow"),
        (HttpSettings(), None, "slow"),
        (VideoSettings(model="fast"), None, "fast"),
        (VideoSettings(model="fast"), "mine", "mine"),
    ],
)
def test_the_model_is_the_requests_or_the_settings_or_the_handlers(
    settings: HttpSettings | None, model: str | None, found: str
) -> None:
    """In this order."""
    assert Studio(settings=settings).model_of(VideoRequest(prompt="p", model=model)) == found


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (VideoRequest(first_frame=URL, last_frame=URL), "makes no video from first_last_frame"),
        (VideoRequest(first_frame=URL, model="fast"), "with model 'fast' makes no video from first_frame"),
        (VideoRequest(prompt="p", seed=1), "no choice of `seed`"),
        (VideoRequest(prompt="p", watermark=False), "no choice of `watermark`"),
        (VideoRequest(prompt="p", width=1, height=1), "no choice of `size`"),
        (VideoRequest(prompt="p", audio_url="https://x.example.com/a.mp3"), "no choice of `audio_url`"),
        (VideoRequest(first_frame="gs://bucket/a.png"), "http or https"),
    ],
)
def test_what_the_provider_or_model_lacks_is_refused(request_: VideoRequest, says: str) -> None:
    """Before anything is written."""
    with pytest.raises(InvalidParams, match=says):
        Studio().validate(request_)


def test_what_it_has_passes() -> None:
    """Sound is the material of a mode, or a choice."""
    Studio().validate(VideoRequest(prompt="p", duration=timedelta(seconds=5)))
    Studio().validate(VideoRequest(first_frame=URL))
    Studio().validate(
        VideoRequest(mode=VideoMode.AUDIO_DRIVEN, audio_url="https://x.example.com/a.mp3", first_frame=URL)
    )


def test_providers_take_whole_seconds() -> None:
    """Half a second more is another video than asked for."""
    assert whole_seconds(timedelta(seconds=5)) == 5
    with pytest.raises(InvalidParams, match=r"5\.5 s"):
        whole_seconds(timedelta(seconds=5.5))


# Copies of videos.


@pytest.fixture
async def files() -> AsyncIterator[ScriptedServer]:
    """A server of videos."""
    async with ScriptedServer([Reply.of(CONTENT, headers={"etag": '"v1"'})]) as server:
        yield server


def studio(server: ScriptedServer, **capture: object) -> Studio:
    """Return a handler that copies."""
    settings = VideoSettings(
        base_url=server.url,
        allow_private=True,
        exchange_timeout=timedelta(seconds=20),
        capture=CaptureSettings(**capture),  # type: ignore[arg-type] # as tests like
    )
    return Studio(ApiKey("studio-key"), settings=settings)


async def asked(handler: Studio, context: QueryContext | None = None) -> QueryResult:
    """Return what a query comes to."""
    await handler.open()
    try:
        return await handler.query(JOB, context or Claim().query)
    finally:
        await handler.close()


def names(folder: Path) -> list[str]:
    """Return what is in a folder."""
    return sorted(each.name for each in folder.iterdir())


def done(files: ScriptedServer, **more: str) -> Reply:
    """Return a finished job."""
    return Reply.of({"status": "filmed", "url": f"{files.url}/v.mp4", **more})


async def test_a_video_is_copied_when_it_is_seen(files: ScriptedServer, tmp_path: Path) -> None:
    """The result says where, how large, and its checksum; nothing is left beside it."""
    async with ScriptedServer([done(files)]) as server:
        result = await asked(studio(server, destination=str(tmp_path / "videos")))
    assert isinstance(result.result, VideoResult)
    (video,) = result.result.videos
    assert video.copy == Copy(
        location=str(tmp_path / "videos" / "task-1.mp4"),
        size_bytes=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )
    assert (tmp_path / "videos" / "task-1.mp4").read_bytes() == CONTENT
    assert names(tmp_path / "videos") == ["task-1.mp4"]
    assert result.result.warnings == ("grainy",)
    assert "authorization" not in files.requests[0].headers


async def test_what_is_there_is_not_copied_again(files: ScriptedServer, tmp_path: Path) -> None:
    """A query that is made again finds it."""
    async with ScriptedServer([done(files)]) as server:
        handler = studio(server, destination=f"file://{tmp_path}")
        first = await asked(handler)
        again = await asked(handler)
    assert first.result == again.result
    assert len(files.requests) == 1


async def test_several_videos_have_names_of_their_own(files: ScriptedServer, tmp_path: Path) -> None:
    """By their number, and made of what file systems take."""
    async with ScriptedServer([done(files, second=f"{files.url}/w")]) as server:
        context = evolve(Claim().query, task_id="a/b c")
        result = await asked(studio(server, destination=str(tmp_path)), context)
    assert isinstance(result.result, VideoResult)
    assert names(tmp_path) == ["a_b_c-1.mp4", "a_b_c-2.mp4"]


async def test_what_broke_off_is_gone_on_with_by_the_next_query(tmp_path: Path) -> None:
    """The first one counts as failed, so that the worker asks again."""
    sent = Reply.of(CONTENT, headers={"etag": '"v1"'}).raw
    half = len(CONTENT) // 2
    broken = Reply(raw=sent[:-half], ending=Ending.CLOSE)
    start = len(CONTENT) - half
    told = {"content-range": f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}", "etag": '"v1"'}
    rest = Reply.of(CONTENT[start:], status=206, headers=told)
    async with ScriptedServer([broken, rest]) as files, ScriptedServer([done(files)]) as server:
        handler = studio(server, destination=str(tmp_path), spool=tmp_path / "spool")
        with pytest.raises(QueryFailed, match="cannot be copied now"):
            await asked(handler)
        result = await asked(handler)
    assert isinstance(result.result, VideoResult)
    assert (tmp_path / "task-1.mp4").read_bytes() == CONTENT
    assert names(tmp_path / "spool") == []
    assert files.requests[1].headers["range"] == f"bytes={start}-"


@pytest.mark.parametrize(
    ("reply", "says"), [(Reply.of(b"", status=404), "HTTP 404"), (None, "larger than 100")]
)
async def test_a_video_that_can_never_be_copied_is_told_without(
    files: ScriptedServer, tmp_path: Path, reply: Reply | None, says: str
) -> None:
    """What was paid for is not lost for a copy: the result has a warning."""
    async with (
        ScriptedServer([reply] if reply else files.replies) as gone,
        ScriptedServer([done(gone)]) as server,
    ):
        result = await asked(studio(server, destination=str(tmp_path), limit_bytes=100))
    assert result.verdict is Verdict.SUCCEEDED
    assert isinstance(result.result, VideoResult)
    assert result.result.videos[0].copy is None
    assert says in result.result.warnings[1]


async def test_credentials_are_not_sent_elsewhere_for_a_copy(tmp_path: Path) -> None:
    """A video that claims to need them, and is of another origin, is told without its copy."""

    class Guarded(Studio):
        key = "video:guarded"

        def read_result(
            self, response: HttpResponse, params: QueryParams, context: QueryContext
        ) -> VideoResult | QueryResult | None:
            """Say that the key is needed."""
            return VideoResult(
                videos=(Video(url="https://elsewhere.example.com/v.mp4", needs_credentials=True),)
            )

    async with ScriptedServer([Reply.of({"status": "filmed"})]) as server:
        capture = CaptureSettings(destination=str(tmp_path))
        result = await asked(
            Guarded(ApiKey("k"), settings=VideoSettings(base_url=server.url, capture=capture))
        )
    assert isinstance(result.result, VideoResult)
    assert "must not see the credentials" in result.result.warnings[0]


async def test_shortly_before_the_deadline_the_result_goes_before_its_copy(tmp_path: Path) -> None:
    """Another try would come too late."""
    async with ScriptedServer([Reply.of(b"", status=503)]) as files, ScriptedServer([done(files)]) as server:
        handler = studio(server, destination=str(tmp_path))
        with pytest.raises(QueryFailed):
            await asked(handler)
        late = Claim().query
        late = evolve(late, deadline_at=late.now + timedelta(minutes=4))
        result = await asked(handler, late)
    assert isinstance(result.result, VideoResult)
    assert "HTTP 503" in result.result.warnings[1]


async def test_a_folder_that_cannot_be_written_is_told(files: ScriptedServer, tmp_path: Path) -> None:
    """And asked again: an operator can mend it."""
    (tmp_path / "file").write_bytes(b"")
    async with ScriptedServer([done(files)]) as server:
        with pytest.raises(QueryFailed, match="cannot be copied now"):
            await asked(studio(server, destination=str(tmp_path / "file" / "videos")))


async def test_a_video_is_copied_to_an_object_store(files: ScriptedServer, tmp_path: Path) -> None:
    """Through fsspec, whole, with nothing left behind."""
    memory = import_module("fsspec").filesystem("memory")
    async with ScriptedServer([done(files)]) as server:
        handler = studio(server, destination="memory://videos/of/mine/", spool=tmp_path)
        result = await asked(handler)
    assert isinstance(result.result, VideoResult)
    copy = result.result.videos[0].copy
    assert copy is not None
    assert copy.location == "memory://videos/of/mine/task-1.mp4"
    assert memory.cat("/videos/of/mine/task-1.mp4") == CONTENT
    assert names(tmp_path) == []


@pytest.mark.parametrize("refusal", [NotImplementedError, PermissionError, FileExistsError])
async def test_a_bucket_needs_no_folders(
    files: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: type[Exception]
) -> None:
    """Some object stores cannot make any, and a key that may write objects need not be allowed to make buckets."""
    memory = import_module("fsspec").filesystem("memory")

    def refuse(*_: object, **__: object) -> None:
        raise refusal

    monkeypatch.setattr(type(memory), "makedirs", refuse)
    monkeypatch.setattr(
        type(memory), "mkdirs", lambda *_, **__: None
    )  # which an upload to memory calls, and a bucket's not
    async with ScriptedServer([done(files)]) as server:
        handler = studio(server, destination=f"memory://bucket/{refusal.__name__}", spool=tmp_path)
        result = await asked(handler)
    assert isinstance(result.result, VideoResult)
    assert result.result.videos[0].copy is not None
    assert memory.cat(f"/bucket/{refusal.__name__}/task-1.mp4") == CONTENT


async def test_an_object_store_that_is_not_known_is_told(files: ScriptedServer) -> None:
    """With what to install."""
    async with ScriptedServer([done(files)]) as server:
        with pytest.raises(ConfigurationError, match=r"coatcheck-handler-video\[capture\]"):
            await asked(studio(server, destination="nowhere://videos"))


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"destination": " "}, "destination is blank"), ({"destination": "a", "limit_bytes": 0}, "limit_bytes")],
)
def test_a_capture_that_can_hold_nothing_is_refused(settings: dict[str, object], says: str) -> None:
    """When it is loaded."""
    with pytest.raises(ConfigurationError, match=says):
        CaptureSettings(**settings)  # type: ignore[arg-type] # a table of settings


async def test_without_capture_the_result_stays_as_it_is() -> None:
    """And so does what is no result."""
    async with ScriptedServer(
        [Reply.of({"status": "filmed", "url": URL}), Reply.of({"status": "filmed"})]
    ) as server:
        handler = Studio(ApiKey("k"), settings=HttpSettings(base_url=server.url))
        made = await asked(handler)
        nothing = await asked(handler)
    assert made.result == VideoResult(
        videos=(Video(url=URL, content_type="video/mp4"),), warnings=("grainy",)
    )
    assert nothing.verdict is Verdict.INCOMPLETE
