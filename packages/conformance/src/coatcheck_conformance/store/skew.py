"""A client whose clock is off: this process's clock, as the modules of a store see it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo

import pytest

__all__ = ["client_clock_off"]


class _SameInstances(type):
    """Takes for instances what are instances of `datetime`: there are no others."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, datetime)


def _moved(by: timedelta) -> dict[int, object]:
    """Return what tells a time that is off by so much, by the id of what it stands for."""

    class Moved(datetime, metaclass=_SameInstances):
        def __new__(cls, *parts: int, **named: int) -> datetime:  # type: ignore[misc] # it makes true ones
            return datetime(*parts, **named)  # type: ignore[arg-type] # noqa: DTZ001 - the zone is the caller's

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override] # true ones
            return datetime.now(tz) + by

        @classmethod
        def utcnow(cls) -> datetime:  # type: ignore[override] # true ones
            return datetime.now(UTC).replace(tzinfo=None) + by

    tell, tell_ns, seconds = time.time, time.time_ns, by.total_seconds()
    return {
        id(datetime): Moved,
        id(tell): lambda: tell() + seconds,
        id(tell_ns): lambda: tell_ns() + int(seconds) * 10**9,
    }


@contextmanager
def client_clock_off(by: timedelta) -> Iterator[None]:
    """Let every module that is loaded by now see a wall clock that is off by `by`; how fast time goes stays."""
    moved = _moved(by)
    with pytest.MonkeyPatch.context() as patch:
        for module in tuple(sys.modules.values()):
            names = getattr(module, "__dict__", {})
            if names is globals():
                continue  # which must know the true time
            for name, value in tuple(names.items()):
                if id(value) in moved:
                    patch.setitem(names, name, moved[id(value)])
        yield
