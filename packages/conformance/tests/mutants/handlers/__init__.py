"""What mutants of handlers are made with: a good handler, and a decorator for subclasses that break it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from plain_handler import PlainHandler
from plain_models import PlainSettings
from plain_spec import MIB, plain_spec

from coatcheck_conformance import HandlerConformance
from mutants import Mutant, register

__all__ = ["breaks_handler"]

_H = TypeVar("_H", bound=type[PlainHandler])


def _settings(url: str) -> PlainSettings:
    return PlainSettings(base_url=url, timeout=timedelta(seconds=1), limit_bytes=MIB)


def breaks_handler(rule: str, **changes: object) -> Callable[[_H], _H]:
    """Return a decorator for a handler that `rule` alone catches; `changes` are those of its spec."""

    def decorate(mutant: _H) -> _H:
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", mutant.__name__).lower()
        factory = f"{mutant.__module__}:{mutant.__name__}"
        spec = plain_spec(factory, **{"settings": _settings, **changes})
        register(Mutant(name=name, rule=rule, suite=HandlerConformance, spec=lambda _: spec))
        return mutant

    return decorate
