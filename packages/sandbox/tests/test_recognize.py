import importlib.util
import io
import socket
import sys
from datetime import timedelta

import httpx
import pytest

from coatcheck_sandbox import (
    DocumentUnreadable,
    EngineMissing,
    Ocr,
    SandboxServer,
    character_accuracy,
    describe,
    pages,
)

needs_engine = pytest.mark.skipif(
    importlib.util.find_spec("rapidocr") is None, reason="needs coatcheck-sandbox[ocr]"
)

TYPESET = {"gazette.jpg", "invoice.jpg", "letter.jpg"}


@pytest.fixture(scope="module")
def ocr() -> Ocr:
    """One engine for all tests, since loading it takes seconds."""
    return Ocr()


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each attempt to connect an error."""

    def refuse(*_: object) -> None:
        raise AssertionError("recognition tried to use the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@needs_engine
@pytest.mark.slow
@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("name", pages.names())
def test_pages_are_read(ocr: Ocr, name: str) -> None:
    """Without network, over 95 % of a typeset page's characters are right, and over 90 % of a real scan's."""
    recognition = ocr(pages.read(name), name)
    accuracy = character_accuracy(recognition.text, pages.truth(name))
    assert accuracy > (0.95 if name in TYPESET else 0.90)


@needs_engine
@pytest.mark.slow
@pytest.mark.parametrize("format_", ["TIFF", "PDF"])
def test_all_pages_of_a_document_are_read(ocr: Ocr, format_: str) -> None:
    """A document of two pages gives the text of the first and then that of the second."""
    image = pytest.importorskip("PIL.Image")
    first, second = (
        image.open(io.BytesIO(pages.read(name))).convert("RGB") for name in ("segmentation.png", "foxes.png")
    )
    file = io.BytesIO()
    options = {"resolution": 150} if format_ == "PDF" else {}
    first.save(file, format=format_, save_all=True, append_images=[second], **options)
    text = ocr(file.getvalue(), f"two.{format_.lower()}").text
    assert text.index("Region-based segmentation") < text.index("jumps!")


@needs_engine
@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n broken", b"%PDF-1.7 broken"])
def test_rubbish_is_refused(ocr: Ocr, content: bytes) -> None:
    """What can't be opened is an error with the document's name, not an empty text."""
    with pytest.raises(DocumentUnreadable, match=r"scan\.png"):
        ocr(content, "scan.png")


@needs_engine
@pytest.mark.slow
def test_a_page_goes_through_the_provider() -> None:
    """Submitted over a socket and queried until it is done, a page comes back as its text."""
    page = "segmentation.png"
    with SandboxServer(delay=timedelta(0)) as sandbox, httpx.Client() as client:
        client.headers["Authorization"] = "Bearer sandbox-key"
        image = client.get(sandbox.page_url(page)).content
        created = client.post(
            f"{sandbox.url}/gitee/v1/async/documents/parse",
            data={"model": "MinerU2.5"},
            files={"file": (page, image)},
        ).json()
        assert sandbox.jobs.wait_recognized(30)
        answer = client.get(f"{sandbox.url}/gitee/v1/task/{created['task_id']}").json()
    assert answer["status"] == "success"
    assert character_accuracy(answer["output"]["markdown"], pages.truth(page)) > 0.90


def test_a_missing_engine_is_told_at_construction(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, the error says how to install it or to do without."""
    monkeypatch.setitem(sys.modules, "rapidocr", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(EngineMissing, match=r"coatcheck-sandbox\[ocr\]"):
        SandboxServer()


def test_describe_needs_no_engine() -> None:
    """The stand-in answers at once with the size and the digest."""
    assert describe(b"abc", "a.png").text.splitlines()[0] == "a.png: 3 bytes"
