import json
import subprocess
import sys
from importlib import import_module

import coatcheck_handler_ocr
from coatcheck.handler import Handler
from coatcheck_handler_ocr.plugin import coatcheck_handlers


def test_every_descriptor_leads_to_what_it_names() -> None:
    """The factory makes a handler of that key, with accounts and settings or without."""
    for descriptor in coatcheck_handlers():
        made = {}
        for name in ("factory", "settings", "account", "params"):
            module, _, attribute = (getattr(descriptor, name) or "").partition(":")
            made[name] = getattr(import_module(module), attribute)
        handler = made["factory"](key="other", accounts=None, settings=None)
        assert isinstance(handler, Handler)
        assert (handler.key, made["factory"].key) == ("other", descriptor.key)
        assert isinstance(made["factory"](settings=made["settings"]()), Handler)


def test_the_plugin_module_is_light() -> None:
    """Finding the plugin imports no HTTP client."""
    code = "import coatcheck_handler_ocr.plugin, json, sys; print(json.dumps([*sys.modules]))"
    loaded = json.loads(subprocess.check_output([sys.executable, "-c", code], text=True))
    assert not {"httpx", "coatcheck_http", "coatcheck_handler_ocr.gitee"} & set(loaded)


def test_public_names_are_there() -> None:
    """Each can be had from the package, and nothing else can."""
    for name in coatcheck_handler_ocr.__all__:
        assert getattr(coatcheck_handler_ocr, name)
        assert name in dir(coatcheck_handler_ocr)
    assert not hasattr(coatcheck_handler_ocr, "nothing")
