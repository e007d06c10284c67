import pytest

from coatcheck.errors import InvalidParams
from coatcheck_handler_video.images import check_image
from coatcheck_http import Download

URL = "https://files.example.com/a?token=secret"


@pytest.mark.parametrize(
    ("content", "told", "expected"),
    [
        (b"\x89PNG\r\n\x1a\n...", "application/octet-stream", "image/png"),
        (b"\xff\xd8\xff\xe0...", "text/plain", "image/jpeg"),
        (b"RIFF\x01\x02\x03\x04WEBP", "image/jpeg", "image/webp"),
        (b"GIF89a", "image/gif", "image/gif"),
    ],
)
def test_the_first_bytes_go_before_what_the_server_says(content: bytes, told: str, expected: str) -> None:
    """Servers of files often know no type, or a wrong one."""
    assert check_image(Download(url=URL, content=content, content_type=told)) == expected


@pytest.mark.parametrize(
    ("content", "told", "match"),
    [
        (b"", "image/png", "empty"),
        (b"<html>", "text/html", "text/html"),
        (b"RIFF\x01\x02\x03\x04WAVE", "x", "x"),
    ],
)
def test_what_is_no_image_is_refused(content: bytes, told: str, match: str) -> None:
    """And the message does not tell the query of its URL."""
    with pytest.raises(InvalidParams, match=match) as caught:
        check_image(Download(url=URL, content=content, content_type=told))
    assert "secret" not in str(caught.value)
