from datetime import timedelta

import pytest

from coatcheck import gates
from coatcheck.errors import ConfigurationError
from coatcheck.gates import Gate, Rate
from coatcheck_http import ProviderFacts


def test_limits_become_gates() -> None:
    """Submissions pass the provider's gate, queries that of its queries."""
    facts = ProviderFacts(
        name="Acme", sources=("acme.example",), submit_rate=Rate(2), query_rate=Rate(10), concurrency=5
    )
    assert facts.suggested_gates("ocr:acme") == (
        Gate(name=gates.provider("ocr:acme"), rate=Rate(2), concurrency=5),
        Gate(name=gates.query("ocr:acme"), rate=Rate(10)),
    )


def test_what_is_not_documented_becomes_no_gate() -> None:
    """Not known is no limit of nothing."""
    facts = ProviderFacts(name="Acme", sources=("acme.example",), poll_floor=timedelta(seconds=5))
    assert facts.suggested_gates("ocr:acme") == ()
    only = ProviderFacts(name="Acme", sources=("acme.example",), concurrency=3)
    assert only.suggested_gates("a") == (Gate(name=gates.provider("a"), concurrency=3),)


def test_a_string_is_no_sequence_of_sources() -> None:
    """It would be taken apart into letters."""
    with pytest.raises(ConfigurationError, match="acme.example"):
        ProviderFacts(name="Acme", sources="acme.example")  # type: ignore[arg-type] # what is refused
