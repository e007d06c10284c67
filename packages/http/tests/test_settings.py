from datetime import timedelta

import pytest

from coatcheck.errors import ConfigurationError
from coatcheck.secret import Secret
from coatcheck_http import HttpSettings


@pytest.mark.parametrize(
    "wrong",
    [
        {"connect_timeout": timedelta()},
        {"read_timeout": timedelta(seconds=-1)},
        {"exchange_timeout": timedelta()},
        {"max_answer_bytes": 0},
        {"max_download_bytes": -1},
        {"max_redirects": -1},
        {"max_retry_after": timedelta(seconds=-1)},
        {"max_connections": 0},
        {"trusted_origins": "https://x"},
        {"private_hosts": "localhost"},
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, object]) -> None:
    """At once, naming the rule."""
    with pytest.raises(ConfigurationError):
        HttpSettings(**wrong)  # type: ignore[arg-type] # on purpose


def test_a_proxys_password_is_not_printed() -> None:
    """Its URL is a secret."""
    assert "pass" not in repr(HttpSettings(proxy=Secret("http://user:pass@proxy")))
