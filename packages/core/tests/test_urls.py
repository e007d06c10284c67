"""Store URLs: taken apart, and shown without secrets."""

import traceback
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coatcheck.errors import ConfigurationError
from coatcheck.urls import StoreUrl, redacted_url

PASSWORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=5, max_size=20)


@pytest.mark.parametrize(
    ("text", "scheme", "url", "settings"),
    [
        ("memory://", "memory", "memory://", {}),
        ("sqlite:///jobs.db", "sqlite", "sqlite:///jobs.db", {}),
        (
            "SQLite:////var/jobs.db?table_prefix=x_",
            "sqlite",
            "sqlite:////var/jobs.db",
            {"table_prefix": "x_"},
        ),
        ("sqlite:///C:/a@b.db", "sqlite", "sqlite:///C:/a@b.db", {}),
        ("redis+sentinel://u:p@h1:1,h2:2/0", "redis+sentinel", "redis+sentinel://u:p@h1:1,h2:2/0", {}),
        ("redis://h:6379/0?user=a@b", "redis", "redis://h:6379/0", {"user": "a@b"}),
        (
            "postgresql://[::1]:5432/db?a=1&b=",
            "postgresql",
            "postgresql://[::1]:5432/db",
            {"a": "1", "b": ""},
        ),
        (
            "postgresql://u:p%3F%40@h/db?n=a%26b+c",
            "postgresql",
            "postgresql://u:p%3F%40@h/db",
            {"n": "a&b c"},
        ),
    ],
)
def test_a_url_is_taken_apart(text: str, scheme: str, url: str, settings: dict[str, str]) -> None:
    """The scheme finds the store, the query string is settings, and the rest is left alone."""
    parsed = StoreUrl.parse(text)
    assert (parsed.scheme, parsed.url, dict(parsed.settings)) == (scheme, url, settings)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jobs.db", "no store URL"),
        ("", "no store URL"),
        (7, "no store URL"),
        ("://x", "no store URL"),
        ("9p://x", "no store URL"),
        ("postgresql:hunter2@h", "no store URL"),
        ("postgresql://u:hun?ter2@h/db", "percent-encode"),
        ("postgresql://u:hun/ter2@h/db", "percent-encode"),
        ("postgresql://u:hun#ter2@h/db", "percent-encode"),
        ("postgresql://h/db?hunter2", "name=value"),
        ("postgresql://h/db?a=hunter2&a=b", "gives a twice"),
    ],
)
def test_what_is_no_url_is_refused_without_showing_it(text: Any, message: str) -> None:
    """The message says what to do, and shows nothing that could be a password."""
    with pytest.raises(ConfigurationError, match=message) as caught:
        StoreUrl.parse(text)
    shown = "".join(traceback.format_exception(caught.value, limit=0))
    assert "hun" not in shown
    assert "ter2" not in shown


@given(PASSWORDS, PASSWORDS)
def test_passwords_never_show(password: str, token: str) -> None:
    """Neither the parsed URL nor the one for people shows what is secret, however it is spelt."""
    text = f"postgresql://user:{quote(password, safe='')}@host/db?token={quote(token, safe='')}"
    parsed = StoreUrl.parse(text)
    assert repr(parsed) == "StoreUrl(scheme='postgresql')"
    assert redacted_url(text) == "postgresql://user:***@host/db?token=***"
    assert {password, quote(password, safe=""), token} <= set(parsed.secrets)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("memory://", "memory://"),
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
        ("redis://:secret@h/0", "redis://:***@h/0"),
        ("redis://user@h/0", "redis://user@h/0"),
        ("postgresql://u:a:b@h/db?x=1&y", "postgresql://u:***@h/db?x=***&y=***"),
        ("secret", "***"),
    ],
)
def test_a_url_for_people(text: str, shown: str) -> None:
    """What is left says where the store is."""
    assert redacted_url(text) == shown


def test_harmless_settings_are_no_secrets() -> None:
    """Only what looks like a credential by its name is kept out of messages."""
    assert StoreUrl.parse("sqlite:///x?table_prefix=jobs_&api_key=hunter2").secrets == ("hunter2",)
