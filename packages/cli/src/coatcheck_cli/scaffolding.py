"""The files of a new plugin distribution, made from templates."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from attrs import frozen

from coatcheck_cli.failing import Exit, Failure

__all__ = ["KINDS", "Names", "names_of", "write_distribution"]

_LONGEST = 30
_PIECES = re.compile(r"\{\{(\w+)\}\}")
_OWN = frozenset(
    {
        "coatcheck-handler-ocr",
        "coatcheck-handler-video",
        "coatcheck-store-redis",
        "coatcheck-store-sql",
    }
)
"""Distributions of coatcheck itself whose names a plugin could come by."""
_TAKEN = frozenset({"Exponential", "Http", "Job", "Locked", "Query", "Standard", "Submit"})
"""Beginnings of class names that are coatcheck's own, such as JobHandler."""


@frozen(kw_only=True)
class _Kind:
    """What is special to the distributions of one kind."""

    title: str
    """What it is called in a sentence."""
    description: str
    """The line for the metadata, with the title of the plugin in the hole."""
    module: str
    """The module that has the thing itself."""
    requires: tuple[str, ...] = ()
    """Distributions of coatcheck that it takes beyond core."""
    sources: tuple[str, ...] = ()
    """Modules of its package."""
    tests: tuple[str, ...] = ("test_conformance.py",)


KINDS: Mapping[str, _Kind] = {
    "handler": _Kind(
        title="handler",
        description="A coatcheck handler for {}: documents to text",
        module="handler",
        requires=("coatcheck-http",),
        sources=("plugin.py", "handler.py"),
        tests=("test_conformance.py", "test_handler.py"),
    ),
    "store": _Kind(
        title="store",
        description="A coatcheck store, {}: tasks in a file",
        module="store",
        sources=("plugin.py", "records.py", "store.py"),
        tests=("test_conformance.py", "test_store.py"),
    ),
    "selector": _Kind(
        title="selector",
        description="A coatcheck selector, {}: the handler that costs least",
        module="selector",
        sources=("plugin.py", "selector.py"),
    ),
    "retry": _Kind(
        title="retry policy",
        description="A coatcheck retry policy, {}: fixed delays",
        module="policy",
        sources=("plugin.py", "policy.py"),
    ),
    "admission": _Kind(
        title="admission policy",
        description="A coatcheck admission policy, {}: a rate for one tenant",
        module="policy",
        sources=("plugin.py", "policy.py"),
    ),
}
"""What can be begun."""


@frozen(kw_only=True)
class Names:
    """What a plugin is called in each place, made of the one name that was given."""

    kind: str
    name: str
    """Lower case, with single hyphens: ``acme-ocr``."""
    key: str
    """What configuration names; ``ocr:acme`` keeps its colon if the kind is a handler."""

    @property
    def distribution(self) -> str:
        """What pip installs."""
        return f"coatcheck-{self.kind}-{self.name}"

    @property
    def package(self) -> str:
        """What Python imports."""
        return self.distribution.replace("-", "_")

    @property
    def entry(self) -> str:
        """The name of the entry point."""
        return f"{self.kind}-{self.name}"

    @property
    def camel(self) -> str:
        """What its classes begin with."""
        found = "".join(part.capitalize() for part in self.name.split("-"))
        return f"My{found}" if found in _TAKEN else found

    @property
    def title(self) -> str:
        """What people call it."""
        return " ".join(part.capitalize() for part in self.name.split("-"))

    @property
    def variable(self) -> str:
        """The environment variable that its README has for a credential."""
        return f"{self.name.replace('-', '_').upper()}_API_KEY"


def names_of(kind: str, given: str) -> Names:
    """Return what a plugin called `given` is called in each place.

    Raises:
        Failure: no name can be made of it, or it is that of a distribution of coatcheck itself.
    """
    words = [_hyphened(part) for part in given.split(":")]
    words[0] = re.sub(rf"^coatcheck-(?:{kind}-)?|^{kind}-(?=.)", "", words[0])
    name = "-".join(words)
    colon = ":" in given
    if colon and (kind != "handler" or len(words) != 2):  # noqa: PLR2004 - the kind of job, and the provider
        message = f"{given!r} has a colon; only a handler's name may have one, as in ocr:acme"
        raise Failure(message, Exit.USAGE)
    if not all(words) or not re.fullmatch(r"[a-z][a-z0-9-]*", name) or len(name) > _LONGEST:
        message = (
            f"no name can be made of {given!r}: give letters of a to z, digits and hyphens, a letter first, "
            f"{_LONGEST} characters at most, such as acme-ocr"
        )
        raise Failure(message, Exit.USAGE)
    names = Names(kind=kind, name=name, key=":".join(words) if colon else name)
    if names.distribution in _OWN:
        message = (
            f"{names.distribution} is a distribution of coatcheck itself; choose another name than {given!r}"
        )
        raise Failure(message, Exit.USAGE)
    return names


def _hyphened(text: str) -> str:
    return re.sub(r"[-_.\s]+", "-", text.strip().lower()).strip("-")


def write_distribution(names: Names, directory: Path, *, version: str) -> Path:
    """Write all files of a new distribution into a new folder below `directory`; return the folder.

    It is there as a whole, or not at all, and nothing that exists is touched.

    Args:
        names: what it is called; the folder bears the name of the distribution.
        directory: where the folder is made; it is made itself if it is missing.
        version: of coatcheck, which the distribution is written for.

    Raises:
        Failure: there is something of that name, or the folder cannot be written.
    """
    target = directory / names.distribution
    if os.path.lexists(target):
        message = f"{target} exists, and nothing is overwritten; move it away, or give another --directory"
        raise Failure(message, Exit.USAGE)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        folder = directory / f".{names.distribution}-{os.getpid()}"
        folder.mkdir()
        try:
            for path, text in _texts(names, version).items():
                file = folder / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8", newline="\n")
            folder.rename(target)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    except OSError as error:
        message = f"{target} cannot be written: {error.strerror or error}"
        raise Failure(message, Exit.FAILED) from error
    return target


def _texts(names: Names, version: str) -> dict[str, str]:
    """Return the files of a distribution: their text, by path."""
    kind = KINDS[names.kind]
    span = _range_of(version)
    requires = ["attrs>=24.2", f"coatcheck{span}", *(f"{each}{span}" for each in kind.requires)]
    values = {
        "camel": names.camel,
        "dependencies": "\n".join(f'  "{each}",' for each in requires),
        "description": kind.description.format(names.title),
        "distribution": names.distribution,
        "entry": names.entry,
        "key": names.key,
        "kind_title": kind.title,
        "module": kind.module,
        "name": names.name,
        "package": names.package,
        "range": span,
        "title": names.title,
        "variable": names.variable,
    }
    source = f"src/{names.package}"
    templates = {
        ".github/workflows/test.yml": "common/test.yml",
        ".gitignore": "common/gitignore",
        "CHANGELOG.md": "common/CHANGELOG.md",
        "README.md": f"{names.kind}/README.md",
        "pyproject.toml": "common/pyproject.toml",
        f"{source}/__init__.py": "common/init.py",
        "tests/test_plugin.py": "common/test_plugin.py",
        **{f"{source}/{each}": f"{names.kind}/{each}" for each in kind.sources},
        **{f"tests/{each}": f"{names.kind}/{each}" for each in kind.tests},
    }
    root = files("coatcheck_cli") / "templates"
    made = {path: (root / f"{name}.tmpl").read_text("utf-8") for path, name in templates.items()}
    filled = {path: _PIECES.sub(lambda hole: values[hole[1]], text) for path, text in made.items()}
    return {**filled, f"{source}/py.typed": ""}


def _range_of(version: str) -> str:
    """Return the range that fits what is written now: up to the next minor before 1.0, then up to the next major."""
    found = re.match(r"(\d+)\.(\d+)", version)
    major, minor = (int(found[1]), int(found[2])) if found else (0, 1)
    upper = f"{major}.{minor + 1}" if major == 0 else f"{major + 1}"
    return f">={major}.{minor},<{upper}"
