import io
import struct
import tracemalloc
import zipfile

import pytest

from coatcheck_handler_ocr import ArchiveLimits, ArchiveRefused, read_markdown

MIB = 1024 * 1024


def packed(*entries: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return an archive of these entries."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["a.md", "sub/full.md", "b.md"], "sub/full.md"),
        (["deep/er/a.md", "longer.md", "b/c.md"], "longer.md"),
        (["bb.md", "a.md"], "a.md"),
        (["FULL.MD", "a.md"], "FULL.MD"),
        (["images/1.png", "x.json"], None),
        (["folder.md/"], None),
        ([], None),
    ],
)
def test_the_whole_document_is_chosen(names: list[str], chosen: str | None) -> None:
    """`full.md` wherever it is, else the Markdown with the shortest path, else nothing."""
    archive = packed(*((name, b"" if name.endswith("/") else f"text of {name}".encode()) for name in names))
    assert read_markdown(archive) == (None if chosen is None else f"text of {chosen}")


def test_text_is_read_whatever_its_bytes() -> None:
    """A mark of byte order is dropped, and what is no UTF-8 is replaced."""
    assert read_markdown(packed(("a.md", b"\xef\xbb\xbf# \xff"))) == "# \ufffd"


@pytest.mark.parametrize(
    "name", ["../full.md", "a/../../full.md", "/etc/full.md", "..\\full.md", "C:/full.md", "C:\\x.md"]
)
def test_paths_that_lead_out_are_refused(name: str) -> None:
    """Nothing is written anyway, but who packs such a path means harm."""
    with pytest.raises(ArchiveRefused, match="leads out"):
        read_markdown(packed(("a.md", b"x"), (name, b"y")))


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (ArchiveLimits(entries=2), "3 entries"),
        (ArchiveLimits(total_bytes=20), "more than 20 bytes"),
        (ArchiveLimits(markdown_bytes=9), "larger than 9 bytes"),
    ],
)
def test_limits_are_kept(limits: ArchiveLimits, why: str) -> None:
    """Entries, bytes in total and bytes of the one that is read."""
    with pytest.raises(ArchiveRefused, match=why):
        read_markdown(packed(("full.md", b"x" * 10), ("b", b"y" * 10), ("c", b"z" * 10)), limits)


def test_a_bomb_is_refused_by_its_ratio() -> None:
    """Without unpacking it."""
    bomb = packed(("full.md", b"\x00" * (20 * MIB)))
    tracemalloc.start()
    with pytest.raises(ArchiveRefused, match="200 to 1"):
        read_markdown(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < MIB


def test_a_bomb_that_lies_about_its_size_is_refused() -> None:
    """What an entry declares is not believed: reading stops, and the checksum tells."""
    bomb = bytearray(packed(("full.md", b"\x00" * (20 * MIB))))
    real, lie = struct.pack("<I", 20 * MIB), struct.pack("<I", 100)
    assert bomb.count(real) == 2
    with pytest.raises(ArchiveRefused):
        read_markdown(bytes(bomb.replace(real, lie)), ArchiveLimits(markdown_bytes=1000))


@pytest.mark.parametrize(
    "content",
    [b"", b"no zip", packed(("full.md", b"words" * 100))[:-30], b"PK\x05\x06" + b"\xff" * 18],
    ids=["empty", "no zip", "cut off", "no entries"],
)
def test_a_broken_archive_is_refused(content: bytes) -> None:
    """Also half of one."""
    with pytest.raises(ArchiveRefused, match="cannot be read"):
        read_markdown(content)


def test_damaged_and_encrypted_entries_are_refused() -> None:
    """The checksum is heeded, and nobody is asked for a password."""
    archive = packed(("full.md", b"words" * 100), method=zipfile.ZIP_STORED)
    with pytest.raises(ArchiveRefused, match="cannot be read"):
        read_markdown(archive.replace(b"wordswords", b"swordsword", 1))
    encrypted = bytearray(archive)
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        encrypted[encrypted.index(signature) + offset] |= 1
    with pytest.raises(ArchiveRefused, match="encrypted"):
        read_markdown(bytes(encrypted))
