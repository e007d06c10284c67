import sys
from types import ModuleType

import pytest

from coatcheck.lazy import lazy_names


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A package with a name in a module of its own, and one elsewhere."""
    made = ModuleType("lazy_pkg")
    made.__path__ = []  # a package
    inner = ModuleType("lazy_pkg.inner")
    vars(inner)["thing"] = object()
    monkeypatch.setitem(sys.modules, "lazy_pkg", made)
    monkeypatch.setitem(sys.modules, "lazy_pkg.inner", inner)
    get, names = lazy_names("lazy_pkg", {".inner": ("thing",), "json": ("dumps",)})
    vars(made).update(__getattr__=get, __dir__=names)
    return made


def test_a_name_is_imported_when_it_is_used(package: ModuleType) -> None:
    """Once; then it is the package's own."""
    assert "thing" not in vars(package)
    assert package.thing is sys.modules["lazy_pkg.inner"].thing
    assert "thing" in vars(package)
    assert package.dumps([1]) == "[1]"


def test_names_are_listed_before_they_are_imported(package: ModuleType) -> None:
    """As completion in an editor wants."""
    assert {"thing", "dumps", "__name__"} <= set(dir(package))


def test_other_names_are_not_there(package: ModuleType) -> None:
    """The error is the usual one."""
    with pytest.raises(AttributeError, match="module 'lazy_pkg' has no attribute 'nothing'"):
        _ = package.nothing
