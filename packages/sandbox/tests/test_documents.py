import httpx
import pytest

from coatcheck_sandbox import Recognition, SandboxServer, UnknownPage, fetch_upload, pages
from coatcheck_sandbox.documents import Documents


def test_a_document_can_be_added_and_takes_the_place_of_another() -> None:
    """The pages that are shipped stay beside it."""
    documents = Documents()
    documents.add("a.pdf", b"%PDF", "application/pdf")
    documents.add("letter.jpg", b"mine", "image/jpeg")
    assert documents.read("a.pdf") == (b"%PDF", "application/pdf")
    assert documents.read("letter.jpg") == (b"mine", "image/jpeg")
    assert documents.read("foxes.png") == (pages.read("foxes.png"), "image/png")
    with pytest.raises(UnknownPage, match=r"a\.pdf"):
        documents.read("b.pdf")


def test_added_documents_are_served(sandbox: SandboxServer) -> None:
    """At the URL that is returned, with their media type."""
    answer = httpx.get(sandbox.serve("two pages.pdf", b"%PDF-1.7", "application/pdf"))
    assert (answer.content, answer.headers["content-type"]) == (b"%PDF-1.7", "application/pdf")


async def test_a_document_is_fetched_as_a_provider_would(sandbox: SandboxServer) -> None:
    """Under the name of its URL, unless the caller gives one."""
    url = sandbox.serve("a.txt", b"words", "text/plain")
    upload = await fetch_upload(url, model="m", token="t", reference="r")
    assert (upload.name, upload.content, upload.model, upload.failure) == ("a.txt", b"words", "m", None)
    assert (upload.token, upload.reference) == ("t", "r")
    assert (await fetch_upload(url, name="b.txt")).name == "b.txt"


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/a.pdf", "ftp://files.example.com/a.pdf", "nonsense"])
async def test_a_document_that_cannot_be_fetched_makes_a_job_that_fails(
    sandbox: SandboxServer, url: str
) -> None:
    """The submission is taken, as by a real provider."""
    upload = await fetch_upload(url)
    job = sandbox.jobs.create(upload)
    snapshot = sandbox.jobs.look_at(job)
    assert snapshot.state == "failed"
    assert snapshot.failure is not None
    assert snapshot.failure.code == "document_unreachable"


def test_a_recognition_of_paragraphs_is_one_page() -> None:
    """Its text has an empty line between them."""
    recognition = Recognition.of("a", "b")
    assert (recognition.text, recognition.pages[0].text, recognition.blocks) == (
        "a\n\nb",
        "a\n\nb",
        ("a", "b"),
    )
