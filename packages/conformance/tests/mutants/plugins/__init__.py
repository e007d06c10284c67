"""What mutants of plugins are made of: a good distribution, written into a folder, with one thing replaced."""

from __future__ import annotations

import textwrap
from pathlib import Path

from coatcheck_conformance.plugin.spec import PluginSpec
from coatcheck_conformance.plugin.suite import PluginConformance
from mutants import Mutant, register

__all__ = ["FILES", "breaks_plugin", "write_distribution"]

NAME = "coatcheck-acme"

FILES = {
    "coatcheck_acme-1.0.dist-info/METADATA": f"""
        Metadata-Version: 2.4
        Name: {NAME}
        Version: 1.0
        License-Expression: MIT
        Requires-Dist: coatcheck>=0.1,<1
        """,
    "coatcheck_acme-1.0.dist-info/entry_points.txt": """
        [coatcheck]
        acme = coatcheck_acme.plugin
        """,
    "coatcheck_acme/__init__.py": "",
    "coatcheck_acme/py.typed": "",
    "coatcheck_acme/more.py": """
        from coatcheck.hooks import *


        @hookimpl
        def coatcheck_tasks_changed(changes):
            pass
        """,
    "coatcheck_acme/nothing.py": """
        from coatcheck.hooks import *


        @hookimpl
        def coatcheck_stores():
            return []
        """,
    "driver_of_acme.py": "",
    "coatcheck_acme/plugin.py": """
        from coatcheck.hooks import *


        @hookimpl
        def coatcheck_stores():
            return [
                StoreDescriptor(
                    key="acme",
                    schemes=("acme", "acmes"),
                    factory="coatcheck_acme.things:create",
                    settings="coatcheck_acme.things:Settings",
                    capabilities=("notifies",),
                    summary="tasks at Acme",
                )
            ]


        @hookimpl
        def coatcheck_handlers():
            return [
                HandlerDescriptor(
                    key="acme:press",
                    factory="coatcheck_acme.things:Press",
                    settings="coatcheck_acme.things:Settings",
                    account="coatcheck_acme.things:Account",
                    params="coatcheck_acme.things:Poster",
                    summary="posters, printed by Acme",
                )
            ]


        @hookimpl
        def coatcheck_selectors():
            return [SelectorDescriptor(key="first", factory="coatcheck_acme.things:make_first", summary="the first")]


        @hookimpl
        def coatcheck_retry_policies():
            return [
                RetryDescriptor(
                    key="acme",
                    factory="coatcheck_acme.things:Patience",
                    settings="coatcheck_acme.things:Patience",
                    summary="patient",
                )
            ]
        """,
    "coatcheck_acme/things.py": """
        import os

        from attrs import field, frozen

        from coatcheck import ConfigurationError, ExponentialRetry, Handler, QueryResult, Secret, SubmitResult
        from coatcheck.memory import MemoryStore


        @frozen
        class Poster:
            text: str


        @frozen(kw_only=True)
        class Settings:
            base_url: str = "https://api.acme.example"
            proxy_password: str = field(default="", repr=False)


        @frozen(kw_only=True)
        class Account:
            user: str
            api_key: Secret


        class Press(Handler[Poster]):
            def __init__(self, *, key, accounts, settings):
                self.key = self.provider_key = key
                self.accounts = accounts or {}
                self.settings = settings or Settings()

            def __repr__(self):
                return f"Press({self.key!r})"

            async def submit(self, params, context):
                return SubmitResult.accepted("1")

            async def query(self, params, context):
                return QueryResult.succeeded(None)


        def create(url, settings=None):
            return MemoryStore()


        async def first(selection):
            return selection.candidates[0]


        def make_first():
            return first


        @frozen(kw_only=True)
        class Patience(ExponentialRetry):
            pass
        """,
}
"""A distribution that keeps every promise, by the names of its files."""


def write_distribution(site: Path, changes: dict[str, tuple[tuple[str, str], ...]]) -> None:
    """Write the good distribution into a folder, with pieces of its files replaced."""
    for name, text in FILES.items():
        content = textwrap.dedent(text).lstrip("\n")
        for old, new in changes.get(name, ()):
            assert old in content, f"{name} has no {old!r}"
            content = content.replace(old, new, 1)
        file = site / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, "utf-8")


def breaks_plugin(rule: str, name: str, file: str, *pieces: tuple[str, str]) -> None:
    """Register the good distribution with pieces of a file replaced, so that `rule` alone notices."""
    (whole,) = (each for each in FILES if each.endswith(file))

    def spec(folder: Path) -> PluginSpec:
        site = folder.parent / "site"  # one for all rules of a run, so that it is looked at once
        if not site.exists():
            write_distribution(site, {whole: pieces})
        return PluginSpec(NAME, path=[site], urls={"acme": "acme://host/x", "acmes": "acmes://host/x"})

    register(Mutant(name=f"plugin_{name}", rule=rule, suite=PluginConformance, spec=spec))
