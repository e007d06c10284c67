import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import coatcheck_handler_ocr
from coatcheck.errors import ConfigurationError
from coatcheck.handler import Handler
from coatcheck.settings import structure_settings
from coatcheck_conformance import PluginConformance, PluginSpec
from coatcheck_handler_ocr.plugin import coatcheck_handlers

NEEDED: dict[str, dict[str, object]] = {
    "ocr:azure": {"base_url": "https://acme.cognitiveservices.azure.com"},
    "ocr:docling": {"base_url": "https://docling.example.com"},
    "ocr:documentai": {
        "project": "p",
        "location": "eu",
        "processor": "c0ffee",
        "output_prefix": "gs://b/out",
    },
    "ocr:http": {
        "base_url": "https://ocr.example.com",
        "submit": {"path": "/jobs", "json": {"url": "{url}"}},
        "query": {"method": "GET", "path": "/jobs/{id}"},
        "words": {"succeeded": "done"},
        "result": {"markdown": "text"},
    },
}
"""The settings without which a handler is nothing."""


def plugin_spec(_folder: Path | None = None) -> PluginSpec:
    """Return the distribution with these settings; the command `coatcheck-conformance` takes it, too."""
    samples = {"coatcheck_handler_ocr.declaration:DeclaredOcrSettings": NEEDED["ocr:http"]}
    return PluginSpec("coatcheck-handler-ocr", settings=NEEDED, samples=samples)


class TestOcrPlugin(PluginConformance):
    """What the kit says of the distribution."""

    @pytest.fixture
    def plugin_spec(self) -> PluginSpec:
        """Return it."""
        return plugin_spec()


def test_every_descriptor_leads_to_what_it_names() -> None:
    """The factory makes a handler of that key, with accounts and settings or without."""
    for descriptor in coatcheck_handlers():
        made = {}
        for name in ("factory", "settings", "account", "params"):
            module, _, attribute = (getattr(descriptor, name) or "").partition(":")
            made[name] = getattr(import_module(module), attribute)
        needed = NEEDED.get(descriptor.key)
        settings = structure_settings(needed or {}, made["settings"], owner=descriptor.key)
        handler = made["factory"](key="other", accounts=None, settings=settings)
        assert isinstance(handler, Handler)
        assert (handler.key, made["factory"].key) == ("other", descriptor.key)
        if needed is None:
            assert isinstance(made["factory"](), Handler)
        else:
            with pytest.raises(ConfigurationError, match=descriptor.key):
                made["factory"]()


def test_the_plugin_module_is_light() -> None:
    """Finding the plugin imports no HTTP client."""
    code = "import coatcheck_handler_ocr.plugin, json, sys; print(json.dumps([*sys.modules]))"
    loaded = json.loads(subprocess.check_output([sys.executable, "-c", code], text=True))
    assert not {"httpx", "coatcheck_http"} & set(loaded)
    assert {name for name in loaded if name.startswith("coatcheck_handler_ocr")} == {
        "coatcheck_handler_ocr",
        "coatcheck_handler_ocr.plugin",
    }


def test_public_names_are_there() -> None:
    """Each can be had from the package, and nothing else can."""
    for name in coatcheck_handler_ocr.__all__:
        assert getattr(coatcheck_handler_ocr, name)
        assert name in dir(coatcheck_handler_ocr)
    assert not hasattr(coatcheck_handler_ocr, "nothing")
