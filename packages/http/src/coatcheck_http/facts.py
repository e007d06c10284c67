"""What a handler's author knows of the provider beyond its wire format: rates, lifetimes, and from where."""

from __future__ import annotations

from datetime import timedelta

from attrs import field, frozen

from coatcheck import gates
from coatcheck.errors import ConfigurationError
from coatcheck.gates import Gate, Rate

__all__ = ["ProviderFacts"]


def _words(values: tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(values, str):
        message = f"a sequence of strings is wanted, not the string {values!r}; write ({values!r},)"
        raise ConfigurationError(message)
    return tuple(values)


@frozen(kw_only=True)
class ProviderFacts:
    """What is known of one provider. None is not known, or not documented; it never means "without limit"."""

    name: str
    """As people write it, such as ``Azure AI Document Intelligence``."""
    sources: tuple[str, ...] = field(converter=_words)
    """Where the facts were read: documentation pages, or repositories at a commit."""
    read: str = "2026"
    """When they were read."""
    submit_rate: Rate | None = None
    """How many submissions an account may make."""
    query_rate: Rate | None = None
    """How many queries an account may make."""
    concurrency: int | None = None
    """How many jobs of an account the provider runs at once."""
    poll_floor: timedelta | None = None
    """How long to wait at least between two queries of one job."""
    links_live: timedelta | None = None
    """How long the URLs of results work, which is why results are captured when they are seen."""
    jobs_live: timedelta | None = None
    """How long the provider remembers a job after its end."""
    verified: bool = False
    """Whether the handler was tried against the live service."""

    def suggested_gates(self, provider_key: str) -> tuple[Gate, ...]:
        """Return gates that keep to the documented limits, for all accounts together; none if none is documented."""
        found = []
        if self.submit_rate is not None or self.concurrency is not None:
            name = gates.provider(provider_key)
            found.append(Gate(name=name, rate=self.submit_rate, concurrency=self.concurrency))
        if self.query_rate is not None:
            found.append(Gate(name=gates.query(provider_key), rate=self.query_rate))
        return tuple(found)
