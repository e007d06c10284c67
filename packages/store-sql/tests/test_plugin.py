import subprocess
import sys

import pytest

from coatcheck.store import Capability
from coatcheck_store_sql import SqlSettings, create, plugin


def test_the_plugin_module_is_light() -> None:
    """Discovering the plugin imports neither SQLAlchemy nor a driver."""
    code = (
        "import sys, coatcheck_store_sql.plugin as plugin; plugin.coatcheck_stores(); "
        "assert not {'sqlalchemy', 'sqlite3', 'alembic'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("scheme", "url"),
    [
        ("sqlite", "sqlite:///a.db"),
        ("postgresql", "postgresql://h/db"),
        ("mysql", "mysql://h/db"),
        ("mariadb", "mariadb://h/db"),
    ],
)
def test_the_descriptors_name_what_is_there(scheme: str, url: str) -> None:
    """Factory, settings and capabilities are those of the stores."""
    (descriptor,) = [each for each in plugin.coatcheck_stores() if each.key == scheme]
    assert descriptor.factory == f"{create.__module__.split('.')[0]}:{create.__name__}"
    assert descriptor.settings == f"{SqlSettings.__module__}:{SqlSettings.__name__}"
    assert scheme in descriptor.names
    assert {Capability(each) for each in descriptor.capabilities} == create(url).capabilities
