import pytest
from plain_spec import plain_spec

from coatcheck_conformance import HandlerConformance, HandlerSpec


class TestPlainHandler(HandlerConformance):
    """A handler written by hand over an HTTP client keeps every promise."""

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """It can do all that a handler can do."""
        return plain_spec()
