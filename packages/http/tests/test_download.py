import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TypeAlias

import pytest

from coatcheck_http import AddressGuard, AddressRefused, Downloader, DownloadFailed, HttpSettings
from coatcheck_http.download import hop
from coatcheck_http.testing import Ending, Reply, ScriptedServer

Open: TypeAlias = Callable[..., Awaitable[Downloader]]


@pytest.fixture
async def opened() -> AsyncIterator[Open]:
    """Open downloaders that may fetch from this machine, and close them at the end."""
    async with AsyncExitStack() as stack:

        async def open_one(*, guard: AddressGuard | None = None, **settings: object) -> Downloader:
            made = HttpSettings(**{"allow_private": True, **settings})  # type: ignore[arg-type] # as tests like
            downloader = Downloader(made) if guard is None else Downloader(made, guard)
            stack.push_async_callback(downloader.close)
            downloader.open()
            return downloader

        yield open_one


@pytest.mark.parametrize(
    ("path", "headers", "name", "kind"),
    [
        ("/files/report.pdf?sig=1", {}, "report.pdf", "application/pdf"),
        ("/a%20b.PNG", {}, "a b.PNG", "image/png"),
        ("/", {}, "document", "application/octet-stream"),
        ("/x", {"content-type": "image/jpeg; charset=x"}, "x", "image/jpeg"),
        ("/x.pdf", {"content-type": "nonsense"}, "x.pdf", "application/pdf"),
        (
            "/x",
            {"content-disposition": 'attachment; filename="../../etc/pass\\"wd.pdf"'},
            "pass_wd.pdf",
            "application/pdf",
        ),
        (
            "/x",
            {"content-disposition": "attachment; filename*=UTF-8''%E6%96%87.pdf"},
            "文.pdf",
            "application/pdf",
        ),
        (
            "/x",
            {"content-disposition": 'attachment; filename="C:\\\\dir\\\\n.pdf"'},
            "n.pdf",
            "application/pdf",
        ),
        ("/x/..%2F..%2Fevil.pdf", {}, "evil.pdf", "application/pdf"),
    ],
)
async def test_a_document_has_a_name_and_a_type(
    opened: Open, path: str, headers: dict[str, str], name: str, kind: str
) -> None:
    """Of the answer or the URL, and never a path."""
    reply = Reply.of(b"bytes", headers=headers)
    async with ScriptedServer([reply]) as server:
        found = await (await opened()).fetch(f"{server.url}{path}")
    assert (found.content, found.file_name, found.content_type) == (b"bytes", name, kind)
    (sent,) = server.requests
    assert (sent.method, sent.target) == ("GET", path)
    assert sent.headers["host"] == server.url.removeprefix("http://")
    assert not {"authorization", "cookie"} & set(sent.headers)


async def test_a_packed_document_is_unpacked(opened: Open) -> None:
    """Within the limit; a mark of byte order is no text."""
    packed = gzip.compress(b"\xef\xbb\xbf# T")
    async with ScriptedServer([Reply.of(packed, headers={"content-encoding": "gzip"})]) as server:
        assert (await (await opened()).fetch(server.url)).text == "# T"


async def test_redirects_are_followed_and_checked(opened: Open) -> None:
    """Each hop goes through the same checks; one that leads inside is refused without a request."""
    checked: list[str] = []

    async def resolver(host: str, _port: int) -> Sequence[str]:
        checked.append(host)
        return ["127.0.0.1"]

    guard = AddressGuard(resolver=resolver, private_hosts=frozenset({"one.test", "two.test"}))
    async with ScriptedServer([Reply.of(b"found")]) as last:
        port = last.url.rpartition(":")[2]
        hops = [
            Reply.of(b"", status=302, headers={"location": "/next?x=1"}),
            Reply.of(b"", status=307, headers={"location": f"http://two.test:{port}/end.txt"}),
            Reply.of(b"", status=301, headers={"location": f"http://inside.test:{port}/end.txt"}),
        ]
        async with ScriptedServer(hops) as server:
            downloader = await opened(guard=guard, allow_private=False)
            start = f"http://one.test:{server.url.rpartition(':')[2]}/start"
            found = await downloader.fetch(start)
            with pytest.raises(AddressRefused, match=r"inside\.test"):
                await downloader.fetch(start)
        assert (found.content, found.file_name) == (b"found", "end.txt")
        assert [each.target for each in server.requests] == ["/start", "/next?x=1", "/start"]
        assert len(last.requests) == 1
        assert last.requests[0].headers["host"] == f"two.test:{port}"
    assert checked == ["one.test", "one.test", "two.test", "one.test", "inside.test"]


async def test_a_name_that_changes_its_mind_gains_nothing(opened: Open) -> None:
    """The name is looked up once, and the connection goes to the very address that was checked."""
    answers = [["127.0.0.1"], ["127.0.0.2"]]
    asked = 0

    async def resolver(_host: str, _port: int) -> Sequence[str]:
        nonlocal asked
        asked += 1
        return answers[min(asked, len(answers)) - 1]

    async with ScriptedServer([Reply.of(b"ok")]) as server:
        guard = AddressGuard(resolver=resolver, allow_private=True)
        port = server.url.rpartition(":")[2]
        found = await (await opened(guard=guard)).fetch(f"http://rebind.test:{port}/x")
    assert (found.content, asked) == (b"ok", 1)


async def test_the_next_address_is_tried(opened: Open) -> None:
    """A host with a dead address beside a living one can be reached."""

    async def resolver(_host: str, _port: int) -> Sequence[str]:
        return ["127.0.0.9", "127.0.0.1"]

    async with ScriptedServer([Reply.of(b"ok")]) as server:
        downloader = await opened(guard=AddressGuard(resolver=resolver, allow_private=True))
        port = server.url.rpartition(":")[2]
        assert (await downloader.fetch(f"http://two.test:{port}/x")).content == b"ok"


async def test_private_addresses_are_refused_by_default(opened: Open) -> None:
    """Without a connection."""
    async with ScriptedServer([Reply.of(b"secret")]) as server:
        downloader = await opened(allow_private=False)
        for url in (
            server.url,
            server.url.replace("127.0.0.1", "localhost"),
            "http://169.254.169.254/latest",
        ):
            with pytest.raises(AddressRefused, match="private_hosts"):
                await downloader.fetch(url)
        assert server.connections == 0


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://x/y", "/etc/passwd", "http://u:p@h/", "gopher://x"]
)
async def test_other_schemes_are_refused(opened: Open, url: str) -> None:
    """Also as the target of a redirect."""
    downloader = await opened()
    with pytest.raises(DownloadFailed) as caught:
        await downloader.fetch(url)
    assert caught.value.final
    if "://" in url:
        async with ScriptedServer([Reply.of(b"", status=302, headers={"location": url})]) as server:
            with pytest.raises(DownloadFailed) as caught:
                await downloader.fetch(server.url)
        assert caught.value.final


async def test_redirects_end(opened: Open) -> None:
    """A circle is left after the number of redirects allowed."""
    async with ScriptedServer([Reply.of(b"", status=302, headers={"location": "/"})]) as server:
        with pytest.raises(DownloadFailed, match="more than 3 times"):
            await (await opened(max_redirects=3)).fetch(server.url)
        assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("status", "final"),
    [
        *[(each, True) for each in (204, 206, 304, 400, 401, 404, 410)],
        *[(each, False) for each in (408, 425, 429, 500, 503)],
    ],
)
async def test_statuses_say_whether_to_try_again(opened: Open, status: int, final: bool) -> None:  # noqa: FBT001 - a parameter
    """What is gone is final; what is busy is not."""
    async with ScriptedServer([Reply.of(b"", status=status)]) as server:
        with pytest.raises(DownloadFailed, match=f"HTTP {status}") as caught:
            await (await opened()).fetch(f"{server.url}/x?sig=hidden")
    assert (caught.value.final, caught.value.status) == (final, status)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("reply", "final"),
    [
        (Reply(), False),
        (Reply(raw=b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"), False),
        (Reply(ending=Ending.STALL), False),
        (Reply(raw=b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 50, ending=Ending.STALL), False),
        (Reply.of(b"x" * 2000), True),
        (Reply.of(gzip.compress(b"\x00" * 100_000), headers={"content-encoding": "gzip"}), True),
        (Reply.of(b"x", headers={"content-encoding": "br"}), True),
    ],
)
async def test_what_breaks_off_or_is_too_large_is_not_taken(
    opened: Open,
    reply: Reply,
    final: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Half a document is none, and nobody waits for ever."""
    async with ScriptedServer([reply]) as server:
        downloader = await opened(max_download_bytes=1000, exchange_timeout=timedelta(seconds=0.3))
        with pytest.raises(DownloadFailed) as caught:
            await downloader.fetch(server.url)
    assert caught.value.final is final


def test_https_is_not_left() -> None:
    """A redirect from https to http is refused; one to another place by https is not."""
    assert hop("https://a.example/x/y", "../z?q=1") == "https://a.example/z?q=1"
    assert hop("http://a.example/", "https://b.example/") == "https://b.example/"
    for location in ("http://a.example/", "HTTP://a.example/", "ftp://a.example/"):
        with pytest.raises(AddressRefused, match="away from https"):
            hop("https://a.example/", location)


async def test_a_limit_of_its_own_can_be_given(opened: Open) -> None:
    """As for a result that is known to be small."""
    async with ScriptedServer([Reply.of(b"x" * 100)]) as server:
        with pytest.raises(DownloadFailed, match="99 bytes"):
            await (await opened()).fetch(server.url, limit_bytes=99)


async def test_a_closed_downloader_says_so() -> None:
    """Nothing is fetched before `open`."""
    with pytest.raises(DownloadFailed, match="not open"):
        await Downloader(HttpSettings(allow_private=True)).fetch("http://127.0.0.1:9/")
