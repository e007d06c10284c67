import subprocess
import sys

from coatcheck.store import Capability
from coatcheck_store_sql import SqlSettings, create, plugin


def test_the_plugin_module_is_light() -> None:
    """Discovering the plugin imports neither SQLAlchemy nor a driver."""
    code = (
        "import sys, coatcheck_store_sql.plugin as plugin; plugin.coatcheck_stores(); "
        "assert not {'sqlalchemy', 'sqlite3', 'alembic'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_descriptor_names_what_is_there() -> None:
    """Factory, settings and capabilities are those of the store."""
    (descriptor,) = plugin.coatcheck_stores()
    assert descriptor.factory == f"{create.__module__.split('.')[0]}:{create.__name__}"
    assert descriptor.settings == f"{SqlSettings.__module__}:{SqlSettings.__name__}"
    assert tuple(descriptor.names) == ("sqlite",)
    assert {Capability(each) for each in descriptor.capabilities} == create("sqlite:///a.db").capabilities
