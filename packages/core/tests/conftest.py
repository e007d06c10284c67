"""What several test modules of core need."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import frozen

import coatcheck.memory  # noqa: F401 - while the path is narrow, nothing else can be found

HOOKS = {
    "Store": "coatcheck_stores",
    "Handler": "coatcheck_handlers",
    "Selector": "coatcheck_selectors",
    "Retry": "coatcheck_retry_policies",
    "Admission": "coatcheck_admission_policies",
}


@frozen
class Site:
    """A folder on the path with real distributions: dist-info folders and modules."""

    folder: Path

    def install(
        self, name: str, light: str | None = None, *, version: str = "1.0", entry: str | None = None
    ) -> str:
        """Install a distribution with an entry point; return its name.

        Args:
            name: of the distribution.
            light: source of its light module, behind the import of the hooks; None: there is no such file.
            version: of the distribution.
            entry: what the entry point names, if not the light module.
        """
        module = name.replace("-", "_").replace(".", "_").lower() + "_plugin"
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nName: body\n"
        )
        (info / "entry_points.txt").write_text(f"[coatcheck]\n{name.lower()} = {entry or module}\n")
        if light is not None:
            self.write(module, f"from coatcheck.hooks import *\n{light}")
        return name

    def write(self, module: str, source: str) -> None:
        """Write a module that can be imported."""
        (self.folder / f"{module}.py").write_text(source)
        importlib.invalidate_caches()

    def offer(self, name: str, kind: str, *descriptors: str, version: str = "1.0") -> str:
        """Install a distribution that offers descriptors of a kind, such as ``key="x", factory="a:b"``."""
        made = ", ".join(f"{kind}Descriptor({each})" for each in descriptors)
        return self.install(name, f"@hookimpl\ndef {HOOKS[kind]}():\n    return [{made}]\n", version=version)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Have a site of its own, in which no other distribution is seen."""
    before = set(sys.modules)
    elsewhere = [
        each for each in sys.path if "site-packages" not in each and not Path(each, "coatcheck").exists()
    ]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *elsewhere])
    monkeypatch.delenv("COATCHECK_STRICT_PLUGINS", raising=False)
    importlib.invalidate_caches()
    yield Site(tmp_path)
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", None)):
            del sys.modules[name]
