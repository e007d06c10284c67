import hashlib
import json
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from coatcheck.errors import HandlerError
from coatcheck.handler import QueryContext
from coatcheck.results import QueryResult
from coatcheck.task import QueryParams
from coatcheck_http import (
    AddressRefused,
    ApiKey,
    Downloader,
    DownloadFailed,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    JobHandler,
    PreparedContext,
    SavedFile,
    StatusMap,
    UntrustedUrl,
)
from coatcheck_http.testing import Claim, Ending, Reply, ScriptedServer

CONTENT = bytes(range(256)) * 400
MIB = 1024 * 1024


def whole(**headers: str) -> Reply:
    """Return all of it."""
    return Reply.of(CONTENT, headers={"content-type": "Video/MP4; x=1", **_named(headers)})


def half(**headers: str) -> Reply:
    """Return all of the headers and half of the body."""
    sent = Reply.of(CONTENT, headers=_named(headers)).raw
    return Reply(raw=sent[: len(sent) - len(CONTENT) // 2], ending=Ending.CLOSE)


def rest(start: int, **headers: str) -> Reply:
    """Return what comes after `start`."""
    told = {"content-range": f"bytes {start}-{len(CONTENT) - 1}/{len(CONTENT)}", **_named(headers)}
    return Reply.of(CONTENT[start:], status=206, headers=told)


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


async def saved(
    replies: Sequence[Reply], path: Path, *, limit: int = MIB, seconds: float = 20
) -> tuple[SavedFile | DownloadFailed, ScriptedServer]:
    """Save from a server with these replies; return what that comes to, and the server."""
    settings = HttpSettings(allow_private=True, exchange_timeout=timedelta(seconds=seconds))
    downloader = Downloader(settings)
    downloader.open()
    async with ScriptedServer(list(replies)) as server:
        try:
            return await downloader.save(f"{server.url}/v.mp4", path, limit_bytes=limit), server
        except DownloadFailed as error:
            return error, server
        finally:
            await downloader.close()


def is_whole(result: object, path: Path) -> bool:
    """Whether the file is there, with its checksum, and nothing else."""
    assert isinstance(result, SavedFile), result
    return (
        path.read_bytes() == CONTENT
        and (result.path, result.size_bytes) == (path, len(CONTENT))
        and result.sha256 == hashlib.sha256(CONTENT).hexdigest()
        and [each.name for each in path.parent.iterdir()] == [path.name]
    )


async def test_a_file_is_saved_whole(tmp_path: Path) -> None:
    """With its size, checksum and type; unpacked content was asked for."""
    result, server = await saved([whole()], tmp_path / "v")
    assert is_whole(result, tmp_path / "v")
    assert isinstance(result, SavedFile)
    assert result.content_type == "video/mp4"
    assert server.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("name", ["etag", "last-modified"])
async def test_what_broke_off_is_gone_on_with(tmp_path: Path, name: str) -> None:
    """If the server has named the version, and says that it is the same."""
    path = tmp_path / "v"
    tag = '"v1"' if name == "etag" else "Tue, 01 Dec 2026 00:00:00 GMT"
    broken, _ = await saved([half(**{name: tag})], path)
    assert isinstance(broken, DownloadFailed)
    assert not broken.final
    there = path.stat().st_size
    assert 0 < there < len(CONTENT)
    result, server = await saved([rest(there, **{name: tag})], path)
    assert is_whole(result, path)
    assert server.requests[0].headers["range"] == f"bytes={there}-"
    assert server.requests[0].headers["if-range"] == tag


@pytest.mark.parametrize("headers", [{}, {"etag": 'W/"weak"'}])
async def test_what_has_no_strong_name_is_fetched_anew(tmp_path: Path, headers: dict[str, str]) -> None:
    """Two halves of different versions would be no video."""
    path = tmp_path / "v"
    await saved([half(**headers)], path)
    result, server = await saved([whole()], path)
    assert is_whole(result, path)
    assert "range" not in server.requests[0].headers


async def test_what_has_changed_is_fetched_anew(tmp_path: Path) -> None:
    """At once where the server sends all of it, at the next call where it refuses the range."""
    path = tmp_path / "v"
    await saved([half(etag='"v1"')], path)
    result, _ = await saved([whole(etag='"v2"')], path)
    assert is_whole(result, path)
    path.unlink()
    await saved([half(etag='"v1"')], path)
    refused, _ = await saved([Reply.of(b"", status=416)], path)
    assert isinstance(refused, DownloadFailed)
    assert not refused.final
    result, server = await saved([whole()], path)
    assert is_whole(result, path)
    assert "range" not in server.requests[0].headers


@pytest.mark.parametrize("told", ["bytes 0-9/10", "bytes 7-9/10", "items 1-2/3", ""])
async def test_a_part_that_was_not_asked_for_is_refused(tmp_path: Path, told: str) -> None:
    """It would be put into the wrong place."""
    path = tmp_path / "v"
    await saved([half(etag='"v1"')], path)
    before = path.read_bytes()
    result, _ = await saved([Reply.of(b"abc", status=206, headers={"content-range": told})], path)
    assert isinstance(result, DownloadFailed)
    assert path.read_bytes() == before


async def test_a_damaged_note_is_no_reason_to_fail(tmp_path: Path) -> None:
    """Then it is fetched anew."""
    for note in ("", "[]", "{}", '{"validator": 7}', '{"validator": ""}'):
        path = tmp_path / "v"
        path.write_bytes(b"abc")
        (tmp_path / "v.part").write_text(note)
        result, _ = await saved([whole()], path)
        assert is_whole(result, path)
        path.unlink()
    (tmp_path / "v.part").write_text(json.dumps({"validator": '"v1"'}))
    result, _ = await saved([whole()], tmp_path / "v")
    assert is_whole(result, tmp_path / "v")


@pytest.mark.parametrize(
    ("reply", "final", "says"),
    [
        (Reply.of(b"", status=404), True, "HTTP 404"),
        (Reply.of(b"", status=403), True, "HTTP 403"),
        (Reply.of(b"", status=429), False, "HTTP 429"),
        (Reply.of(b"", status=503), False, "HTTP 503"),
        (Reply.of(b"", status=206), True, "HTTP 206"),
        (Reply.of(b"x", headers={"content-encoding": "gzip"}), True, "packed as 'gzip'"),
        (Reply(raw=b"nonsense"), False, "broke off after 0 bytes"),
    ],
)
async def test_what_cannot_be_had_is_told(tmp_path: Path, reply: Reply, final: bool, says: str) -> None:  # noqa: FBT001 - of a table
    """And whether trying again is of use."""
    result, _ = await saved([reply], tmp_path / "v")
    assert isinstance(result, DownloadFailed)
    assert (result.final, says in str(result)) == (final, True), result


async def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """Before it comes where the server tells its size, else as soon as it shows."""
    told, _ = await saved([whole()], tmp_path / "v", limit=1000)
    assert isinstance(told, DownloadFailed)
    assert (told.final, (tmp_path / "v").exists()) == (True, False)
    endless = Reply(raw=b"HTTP/1.1 200 OK\r\n\r\n" + CONTENT, ending=Ending.CLOSE)
    shown, _ = await saved([endless], tmp_path / "v", limit=1000)
    assert isinstance(shown, DownloadFailed)
    assert (shown.final, shown.code) == (True, "too_large")
    assert (tmp_path / "v").stat().st_size <= 1000


async def test_a_server_that_says_no_more_is_left(tmp_path: Path) -> None:
    """What has come stays for the next call."""
    sent = Reply.of(CONTENT, headers={"etag": '"v1"'}).raw
    stalled = Reply(raw=sent[:-1000], ending=Ending.STALL)
    result, _ = await saved([stalled], tmp_path / "v", seconds=0.5)
    assert isinstance(result, DownloadFailed)
    assert (result.final, "broke off" in str(result)) == (False, True)
    there = (tmp_path / "v").stat().st_size
    result, _ = await saved([rest(there)], tmp_path / "v")
    assert is_whole(result, tmp_path / "v")


class Keeper(JobHandler[str]):
    """A provider whose files need credentials."""

    key = "keep:acme"
    default_base_url = "https://keep.example.com"
    statuses = StatusMap(succeeded="done")
    params_type = str

    def build_submit(self, params: str, context: PreparedContext) -> HttpRequest:
        """Ask."""
        return HttpRequest.post("/", json=params)

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> QueryResult | None:
        """Return nothing."""
        return None


async def test_credentials_go_with_the_request_and_not_with_its_redirect(tmp_path: Path) -> None:
    """A video behind the provider's own URL, which leads to a store that must not see the key."""
    async with ScriptedServer([whole()]) as store:
        away = Reply.of(b"", status=302, headers={"location": f"{store.url}/signed"})
        async with ScriptedServer([away, whole()]) as server:
            settings = HttpSettings(base_url=server.url, allow_private=True)
            handler = Keeper(ApiKey("keep-key"), settings=settings)
            await handler.open()
            context = Claim().query
            redirected = await handler.save(HttpRequest.get("/files/1"), tmp_path / "a", context)
            direct = await handler.save(HttpRequest.get("/files/2"), tmp_path / "b", context)
            plain = await handler.save(f"{store.url}/public", tmp_path / "c", context)
            with pytest.raises(UntrustedUrl):
                await handler.save(HttpRequest.get(f"{store.url}/3"), tmp_path / "d", context)
            await handler.close()
    assert {each.sha256 for each in (redirected, direct, plain)} == {hashlib.sha256(CONTENT).hexdigest()}
    assert [each.headers.get("authorization") for each in server.requests] == ["Bearer keep-key"] * 2
    assert [each.headers.get("authorization") for each in store.requests] == [None, None]


async def test_a_redirect_into_a_private_network_is_refused(tmp_path: Path) -> None:
    """Whoever names it."""
    async with ScriptedServer([whole()]) as store:
        away = Reply.of(b"", status=302, headers={"location": f"{store.url}/signed"})
        async with ScriptedServer([away]) as server:
            handler = Keeper(ApiKey("keep-key"), settings=HttpSettings(base_url=server.url))
            await handler.open()
            with pytest.raises(AddressRefused):
                await handler.save(HttpRequest.get("/files/1"), tmp_path / "a", Claim().query)
            await handler.close()
        assert store.connections == 0


async def test_a_closed_handler_saves_nothing(tmp_path: Path) -> None:
    """The error says what to do."""
    with pytest.raises(HandlerError, match="open"):
        await Keeper(ApiKey("k")).save(HttpRequest.get("/files/1"), tmp_path / "a", Claim().query)
