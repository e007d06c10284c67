from pathlib import Path

import pytest

import coatcheck_handler_video
from coatcheck import ConfigurationError, discover
from coatcheck_conformance import PluginConformance, PluginSpec
from coatcheck_handler_video import VideoHandler
from coatcheck_handler_video.plugin import coatcheck_handlers

NEEDED: dict[str, dict[str, object]] = {
    "video:openai": {"base_url": "https://videos.example.com/v1"},
    "video:vertex": {"project": "p", "storage_uri": "gs://bucket/videos"},
}
"""The settings without which a handler is nothing."""


def plugin_spec(_folder: Path | None = None) -> PluginSpec:
    """Return the distribution with these settings; the command `coatcheck-conformance` takes it, too."""
    samples = {
        "coatcheck_handler_video.openai_compatible:OpenAiVideoSettings": NEEDED["video:openai"],
        "coatcheck_handler_video.vertex:VertexVeoSettings": NEEDED["video:vertex"],
    }
    return PluginSpec("coatcheck-handler-video", settings=NEEDED, samples=samples)


class TestVideoPlugin(PluginConformance):
    """What the kit says of the distribution."""

    @pytest.fixture
    def plugin_spec(self) -> PluginSpec:
        """Return it."""
        return plugin_spec()


@pytest.mark.parametrize("key", [each.key for each in coatcheck_handlers()])
def test_each_can_be_had_by_name(key: str) -> None:
    """As configuration writes it, also twice under keys of its own; what it needs is told by the handler's name."""
    handler = discover().create_handler(f"{key}-eu", use=key, settings=NEEDED.get(key))
    assert isinstance(handler, VideoHandler)
    assert (handler.key, handler.facts is not None) == (f"{key}-eu", True)
    if key in NEEDED:
        with pytest.raises(ConfigurationError):
            discover().create_handler(key)
    else:
        assert discover().create_handler(key).key == key


def test_public_names_are_there() -> None:
    """Each can be had from the package."""
    for name in coatcheck_handler_video.__all__:
        assert getattr(coatcheck_handler_video, name)
        assert name in dir(coatcheck_handler_video)
