import base64

import pytest

from coatcheck.errors import HandlerError
from coatcheck_http import redact, short
from coatcheck_http.redaction import redact_error

SECRET = "s3cr+t/with=signs"


@pytest.mark.parametrize(
    "form",
    [SECRET, "s3cr%2Bt%2Fwith%3Dsigns", base64.b64encode(SECRET.encode()).decode()],
)
def test_a_known_secret_is_hidden_in_every_form(form: str) -> None:
    """Plain, URL-encoded or in base64, wherever it stands."""
    assert redact(f"before{form}after", [SECRET]) == "before***after"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GET /x?access_token=abc&page=2", "GET /x?access_token=***&page=2"),
        ("https://b/k?X-Amz-Signature=aa&X-Amz-Date=bb", "https://b/k?X-Amz-Signature=***&X-Amz-Date=***"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
        ('{"api_key": "abc", "a": 1}', '{"api_key": "***", "a": 1}'),
        ("{'X-Api-Key': 'abc'}", "{'X-Api-Key': '***'}"),
        ("the header was Bearer abcdefgh123", "the header was Bearer ***"),
        ("the account's key is empty", "the account's key is empty"),
        ("error code: 17, page: 3", "error code: 17, page: 3"),
    ],
)
def test_what_is_named_like_a_secret_is_hidden(text: str, shown: str) -> None:
    """Tokens in URLs, headers and JSON are hidden though nobody told which they are; the rest stays."""
    assert redact(text) == shown


def test_tiny_secrets_spoil_no_message() -> None:
    """What has three characters protects nothing, and would be found everywhere."""
    assert redact("a message", ["a"]) == "a message"


def test_causes_groups_and_cycles_are_redacted() -> None:
    """Whatever is reached from an error is redacted, and a cycle ends."""
    inner = ValueError(f"inner {SECRET}", 7)
    group = ExceptionGroup(f"group {SECRET}", [inner])
    outer = HandlerError(f"outer {SECRET}", code=f"code {SECRET}")
    outer.__cause__ = group
    inner.__context__ = outer
    redact_error(outer, [SECRET])
    assert (outer.args, outer.code) == (("outer ***",), "code ***")
    assert inner.args == ("inner ***", 7)


def test_a_providers_words_become_one_short_line() -> None:
    """Line breaks and control characters go, and so does everything after the limit."""
    assert short("a\r\nb\x00\tc") == "a b c"
    assert short("x" * 3000, 10) == "x" * 10 + "..."
