import pytest

from coatcheck.errors import ConfigurationError, InvalidParams
from coatcheck_http import check_document_url, origin_of, refuse_local, segment, shown
from coatcheck_http.urls import check_base_url, is_trusted


@pytest.mark.parametrize(
    "url",
    [
        "https://files.example.com/a.pdf",
        "http://127.0.0.1:8000/a b.pdf".replace(" ", "%20"),
        "HTTPS://EXAMPLE.com/?X-Amz-Signature=abc",
        "https://[2001:db8::1]/a",
        "https://例え.jp/文書.pdf",
    ],
)
def test_urls_of_documents_are_taken(url: str) -> None:
    """Absolute http and https URLs, presigned or not."""
    check_document_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a.pdf",
        "/tmp/a.pdf",
        "./a.pdf",
        "C:\\a.pdf",
        "\\\\server\\a.pdf",
        "~/a.pdf",
        "file:///tmp/a.pdf",
        " FILE:/a",
        "data:application/pdf;base64,AAAA",
        "ftp://example.com/a",
        "s3://bucket/a",
        "https://",
        "https:///a",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://[::1",
        "https://example.com/a b",
        "https://example.com/a\r\nHost: evil",
        "https://example.com\\@evil.com",
        "https://user:hidden@example.com/a",
        "https://user@example.com/a",
        "https://example.com/" + "a" * 9000,
        "QUJD" * 400,
        None,
        b"https://example.com",
        7,
    ],
)
def test_what_no_other_machine_can_fetch_is_refused(url: object) -> None:
    """Local paths, files, data and malformed URLs are refused, with what to do and without the credentials."""
    with pytest.raises(InvalidParams, match=r"upload it and submit a URL|presigned") as caught:
        check_document_url(url)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [{"image": "data:image/png;base64,AA"}]}, r"options\.a\[0\]\.image"),
        ({"a": "file:///etc/passwd"}, r"options\.a"),
        ({"a": "QUJD" * 400}, r"options\.a"),
        ([b"x"], r"options\[0\]"),
    ],
)
def test_local_things_are_found_at_any_depth(value: object, path: str) -> None:
    """The message leads to the culprit."""
    with pytest.raises(InvalidParams, match=path):
        refuse_local(value, path="options")


def test_ordinary_options_pass() -> None:
    """Long prose, numbers and nested values are no bodies in base64."""
    refuse_local({"prompt": "word, " * 500, "n": [1, None, {"x": True}]}, path="options")


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://Example.com/a", "https://example.com:443"),
        ("http://example.com.:8080", "http://example.com:8080"),
        ("https://user@example.com:443/", "https://example.com:443"),
        ("https://[::1]/", "https://[::1]:443"),
    ],
)
def test_an_origin_is_scheme_host_and_port(url: str, origin: str) -> None:
    """Case, a final dot and the usual port make no difference."""
    assert origin_of(url) == origin


def test_trust_is_by_origin() -> None:
    """Another scheme, port, or a host that only starts alike is not trusted."""
    trusted = ["https://api.example.com/v1"]
    assert is_trusted("https://api.example.com:443/other", trusted)
    for url in (
        "http://api.example.com/v1",
        "https://api.example.com:8443/v1",
        "https://api.example.com.evil.com/v1",
        "https://api.example.com@evil.com/v1",
    ):
        assert not is_trusted(url, trusted)
    with pytest.raises(InvalidParams):
        is_trusted("/v1", trusted)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("https://u:p@h.com/a?token=x#y", "https://h.com/a?..."),
        ("/a?b", "/a?..."),
        ("https://[broken", "(not a URL)"),
    ],
)
def test_messages_show_no_credentials(url: str, text: str) -> None:
    """User, password, query and fragment stay out."""
    assert shown(url) == text
    assert len(shown("https://h/" + "x" * 999)) < 220


def test_an_id_is_one_segment() -> None:
    """An id cannot lead to another path."""
    assert segment("a/b?c#d e") == "a%2Fb%3Fc%23d%20e"
    for value in ("", ".", ".."):
        with pytest.raises(InvalidParams):
            segment(value)


def test_a_base_url_is_checked() -> None:
    """Plain http is for this machine, or has to be allowed; no credentials or query are in it."""
    assert check_base_url("https://api.example.com/v1/", allow_http=False) == "https://api.example.com/v1"
    for local in ("http://127.0.0.1:1/x", "http://localhost", "http://[::1]:2"):
        assert check_base_url(local, allow_http=False) == local
    assert check_base_url("http://docling:5001", allow_http=True) == "http://docling:5001"
    with pytest.raises(ConfigurationError, match="allow_http"):
        check_base_url("http://docling:5001", allow_http=False)
    for wrong in ("api.example.com", "https://u:p@h", "https://h?x=1", "https://h#x", "ftp://h", ""):
        with pytest.raises(ConfigurationError, match="base_url"):
            check_base_url(wrong, allow_http=True)


@pytest.mark.parametrize("url", ["s3://bucket/key", "S3://bucket/a/b.pdf", "https://files.example.com/a.pdf"])
def test_buckets_are_taken_where_they_are_allowed(url: str) -> None:
    """By the schemes that a handler names."""
    check_document_url(url, schemes=("s3", "https"))


@pytest.mark.parametrize(
    "url",
    [
        "gs://bucket/key",
        "http://files.example.com/a",
        "s3://bucket",
        "s3:///key",
        "s3://[x/key",
        "s3:bucket/key",
    ],
)
def test_other_schemes_and_half_names_are_refused(url: str) -> None:
    """The message names the schemes that are possible."""
    with pytest.raises(InvalidParams, match="s3 or https"):
        check_document_url(url, schemes=("s3", "https"))
