"""What a command works with: the configuration, the app it describes, and where to print."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from attrs import define, field

from coatcheck_cli.failing import Exit, Failure, explain

if TYPE_CHECKING:
    from coatcheck import App, ConfigurationError
    from coatcheck.configuration import Configuration

__all__ = ["DURATION", "RATE", "Session", "pass_session"]

T = TypeVar("T")


@define(kw_only=True)
class Session:
    """One call of the command."""

    config_file: str | None = None
    """The file that was named, if one was."""
    app_reference: str | None = None
    """``module:attribute`` of an app in code, if one was named."""
    works: bool = False
    """Whether it is to work for the handlers: then what is wrong with what somebody wrote of them is an error."""
    left_out: list[str] = field(factory=list, init=False)
    """The keys of handlers that cannot be made."""
    _app: App | None = field(default=None, init=False)

    def configuration(self) -> Configuration:
        """Return the configuration.

        Raises:
            ConfigurationError: there is none, or something in it is wrong.
        """
        from coatcheck.configuration import load_configuration  # noqa: PLC0415 - help has no use for it

        return load_configuration(self.config_file)

    def app(self) -> App:
        """Return the app: the one that was named, or the configured one; made once.

        Raises:
            ConfigurationError: there is none, or something is wrong with it.
            Failure: the reference leads to no app.
        """
        if self._app is None:
            self._app = self._make_app()
        return self._app

    def _make_app(self) -> App:
        from coatcheck import App  # noqa: PLC0415 - help has no use for it

        if self.app_reference is None:
            return App.from_config(self.config_file, unusable=self._leave_out)
        found = _imported(self.app_reference)
        if callable(found) and not isinstance(found, App):
            found = found()
        if not isinstance(found, App):
            kind = type(found).__name__
            message = (
                f"--app {self.app_reference!r} is {kind}; name a coatcheck.App, or a function that makes one"
            )
            raise Failure(message, Exit.USAGE)
        return found

    def _leave_out(self, key: str, error: ConfigurationError) -> None:
        """Go on without a handler, whose tasks can be looked at and decided on all the same; say so."""
        from coatcheck import PluginError  # noqa: PLC0415 - help has no use for it

        if self.works and not isinstance(error, PluginError):
            raise error
        self.left_out.append(key)
        told = " ".join(str(error).split())
        click.echo(f"Warning: handler {key!r} is left out, and its tasks wait: {told}", err=True)

    def run(self, work: Callable[[App], Awaitable[T]]) -> T:
        """Run `work` with the app, open; return what it returns.

        Raises:
            Failure: an error of coatcheck, in one line.
        """
        import asyncio  # noqa: PLC0415 - help has no use for it

        return self.guarded(lambda: asyncio.run(_within(self.app(), work)))

    def guarded(self, work: Callable[[], T]) -> T:
        """Run `work`, and make one line of coatcheck's errors.

        Raises:
            Failure: such an error, or the command was interrupted.
        """
        try:
            return work()
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            raise Failure("interrupted", Exit.INTERRUPTED) from None
        except Exception as error:
            found = explain(error)
            if found is None:
                raise
            raise found from error


async def _within(app: App, work: Callable[[App], Awaitable[T]]) -> T:
    async with app:
        return await work(app)


def _imported(reference: str) -> Any:  # noqa: ANN401 - whatever is there
    module, colon, attribute = reference.partition(":")
    if not colon or not module or not attribute:
        message = f"--app {reference!r} is written module:attribute, such as shop.jobs:app"
        raise Failure(message, Exit.USAGE)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as for `python -m`: the command is started in the project's folder
    try:
        found: Any = import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        message = f"--app {reference!r} cannot be imported: {error}"
        raise Failure(message, Exit.USAGE) from error
    return found


pass_session = click.make_pass_decorator(Session, ensure=True)


class _Duration(click.ParamType[timedelta]):
    """A duration such as ``30s`` or ``1h30m``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:  # noqa: ANN401 - click's own
        """Read it."""
        from coatcheck.errors import ConfigurationError  # noqa: PLC0415 - help has no use for it
        from coatcheck.settings import parse_duration  # noqa: PLC0415

        if isinstance(value, timedelta):
            return value
        try:
            return parse_duration(value)
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


class _Rate(click.ParamType[Any]):
    """A rate such as ``5/s`` or ``100/m``."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - a Rate
        """Read it."""
        from coatcheck.errors import ConfigurationError  # noqa: PLC0415 - help has no use for it
        from coatcheck.settings import parse_rate  # noqa: PLC0415

        if not isinstance(value, str):
            return value
        try:
            return parse_rate(value)
        except ConfigurationError as error:
            self.fail(str(error), param, ctx)


DURATION = _Duration()
"""The type of options that take a duration."""
RATE = _Rate()
"""The type of options that take a rate."""
