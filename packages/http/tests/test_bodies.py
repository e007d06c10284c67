import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator

import pytest

from coatcheck_http import UnreadableAnswer
from coatcheck_http.bodies import Body

MIB = 1024 * 1024


async def chunks(content: bytes, size: int = 1000) -> AsyncIterator[bytes]:
    """Yield the content in pieces."""
    for start in range(0, len(content), size):
        yield content[start : start + size]


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("", b"words" * 100),
        ("identity", b"words" * 100),
        ("gzip", gzip.compress(b"words" * 100, mtime=0)),
        (" GZIP ", gzip.compress(b"words" * 100, mtime=0)),
        ("deflate", zlib.compress(b"words" * 100)),
        ("gzip", b""),
    ],
)
async def test_a_body_is_unpacked(encoding: str, packed: bytes) -> None:
    """What was offered is understood, and an empty body is empty."""
    body = Body(encoding, 500)
    await body.read(chunks(packed, 7))
    assert body.data == (b"words" * 100 if packed else b"")


async def test_a_body_up_to_the_limit_is_taken() -> None:
    """The limit itself is allowed, and a byte more is not."""
    await Body("", 10).read(chunks(b"x" * 10))
    await Body("gzip", 1000).read(chunks(gzip.compress(b"x" * 1000)))
    for encoding, packed in (("", b"x" * 11), ("gzip", gzip.compress(b"x" * 1001))):
        with pytest.raises(UnreadableAnswer, match="larger") as caught:
            await Body(encoding, len(packed) - 1 if not encoding else 1000).read(chunks(packed))
        assert caught.value.code == "body_too_large"


async def test_a_bomb_costs_no_more_than_the_limit() -> None:
    """A small answer that unpacks to gigabytes is stopped while it is unpacked."""
    bomb = gzip.compress(b"\x00" * (200 * MIB), 9)
    body = Body("gzip", MIB)
    tracemalloc.start()
    with pytest.raises(UnreadableAnswer, match="larger"):
        await body.read(chunks(bomb, 65536))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * MIB


@pytest.mark.parametrize("packed", [b"no gzip", gzip.compress(b"words" * 100, mtime=0)[:-20]])
async def test_a_broken_body_is_unreadable(packed: bytes) -> None:
    """What cannot be unpacked to its end is not taken for less than it is."""
    with pytest.raises(UnreadableAnswer):
        await Body("gzip", 1000).read(chunks(packed))


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip"])
def test_an_encoding_that_was_not_offered_is_refused(encoding: str) -> None:
    """Nested and unknown encodings are refused before anything is read."""
    with pytest.raises(UnreadableAnswer, match="not offered"):
        Body(encoding, 1000)
