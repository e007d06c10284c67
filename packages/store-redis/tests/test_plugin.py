"""What discovery sees of the package."""

import subprocess
import sys
from collections.abc import Mapping

import pytest

from coatcheck import create_store
from coatcheck.errors import ConfigurationError
from coatcheck.store import Capability
from coatcheck_store_redis import RedisSettings, RedisStore, create, plugin
from coatcheck_store_redis.urls import SCHEMES


def test_the_plugin_module_is_light() -> None:
    """Discovering the plugin imports no driver."""
    code = (
        "import sys, coatcheck_store_redis.plugin as plugin; plugin.coatcheck_stores(); "
        "assert not {'redis', 'hiredis'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_descriptor_names_what_is_there() -> None:
    """Factory, settings, schemes and capabilities are those of the store."""
    (descriptor,) = plugin.coatcheck_stores()
    assert descriptor.factory == f"{create.__module__.split('.')[0]}:{create.__name__}"
    assert descriptor.settings == f"{RedisSettings.__module__}:{RedisSettings.__name__}"
    assert tuple(descriptor.schemes) == SCHEMES
    assert {Capability(each) for each in descriptor.capabilities} == create("redis://h").capabilities


def test_settings_stand_in_the_url_or_beside_it() -> None:
    """A query string and keywords are the same settings; one that is not known is refused."""
    store = create("redis://h/3?namespace=jobs&timeout=5s")
    assert store.prefix == "{jobs}:"
    assert store.settings.timeout.total_seconds() == 5
    assert create("redis://h", settings=RedisSettings(namespace="a.b")).prefix == "{a.b}:"
    bad: Mapping[str, object]
    for bad in ({"namespace": "{x}"}, {"namespaces": "x"}, {"timeout": "0s"}, {"keep_finished": "-1s"}):
        with pytest.raises(ConfigurationError):
            create("redis://h", **bad)  # type: ignore[arg-type]  # what is no setting is refused


def test_a_url_is_enough_once_it_is_installed() -> None:
    """`create_store` finds the store by the scheme of its URL."""
    assert isinstance(create("redis://h"), RedisStore)
    assert callable(create_store)
