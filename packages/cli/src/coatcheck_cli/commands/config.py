"""`coatcheck config`: is it right, and what is it?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from coatcheck_cli.failing import Exit, Failure
from coatcheck_cli.gate_names import check_name
from coatcheck_cli.groups import LazyGroup
from coatcheck_cli.output import Output, json_option
from coatcheck_cli.session import Session, pass_session

__all__ = ["config"]

HIDDEN = "***"
_REFERENCES = ({"env"}, {"file"})


@click.group(
    name="config",
    cls=LazyGroup,
    epilog="\b\nExamples:\n  coatcheck config check\n  coatcheck config show --json\n",
)
def config() -> None:
    """Check and show the configuration.

    It is looked for in this order: --config, the variable COATCHECK_CONFIG, coatcheck.toml, [tool.coatcheck] of
    pyproject.toml. Variables such as COATCHECK_WORKER__QUERIES go before all of these.
    """


@config.command(name="check")
@json_option
@pass_session
def check(session: Session, *, as_json: bool) -> None:
    """Make everything that is configured, and say what is wrong.

    Nothing is connected to. Credentials are looked up, and not shown.
    """
    from coatcheck.configuration import read_written  # noqa: PLC0415 - help has no use for it
    from coatcheck.configuration.making import gates_of, parts_of  # noqa: PLC0415
    from coatcheck.configuration.reading import configuration_of  # noqa: PLC0415

    def work() -> dict[str, object]:
        written = read_written(session.config_file)
        configuration = configuration_of(written)
        for name in configuration.gates:
            check_name(name)
        parts = parts_of(configuration, written=written)
        missing = _missing_secrets(configuration.handlers)
        if missing:
            raise Failure("; ".join(missing), Exit.USAGE)
        return {
            "store": type(parts["store"]).__name__,
            "handlers": sorted(handler.key for handler in parts["handlers"]),
            "gates": [gate.name for gate in gates_of(configuration)],
        }

    found = session.guarded(work)
    out = Output(as_json=as_json)
    if as_json:
        out.print_json({"ok": True, **found})
        return
    out.pairs(found)
    out.say("the configuration is right")


@config.command(name="show")
@json_option
@pass_session
def show(session: Session, *, as_json: bool) -> None:
    """Show what is written, and where; secrets are masked."""
    from coatcheck.configuration import read_written  # noqa: PLC0415 - help has no use for it

    written = session.guarded(lambda: read_written(session.config_file))
    values = masked(written.values)
    out = Output(as_json=as_json)
    if as_json:
        out.print_json(values)
        return
    rows: list[dict[str, object]] = [
        {
            "setting": ".".join(path),
            "value": value,
            "from": written.place(*path).rpartition(": ")[0] or written.place(*path),
        }
        for path, value in _leaves(values, ())
    ]
    out.table(rows, ("setting", "value", "from"), empty="nothing is configured")


def _missing_secrets(handlers: Mapping[str, Any]) -> list[str]:
    """Return what is to be said of credentials that cannot be had, one each."""
    from coatcheck import ConfigurationError, Secret  # noqa: PLC0415 - help has no use for it

    found = []
    for key, handler in handlers.items():
        for account, fields in handler.accounts.items():
            for name, value in fields.items():
                if not isinstance(value, Mapping) or set(value) not in _REFERENCES:
                    continue
                source, place = next(iter(value.items()))
                secret = Secret.from_env(place) if source == "env" else Secret.from_file(place)
                try:
                    secret.reveal()
                except ConfigurationError as error:
                    found.append(f"handlers.{key}.accounts.{account}.{name}: {error}")
    return found


def masked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was written with credentials hidden: those of accounts, and passwords in URLs.

    References to credentials, ``{env = "NAME"}``, stay: they are none.
    """
    return {name: _masked(value, (name,)) for name, value in values.items()}


def _masked(value: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - TOML
    if isinstance(value, Mapping):
        if set(value) in _REFERENCES:
            return dict(value)
        return {name: _masked(each, (*path, name)) for name, each in value.items()}
    if isinstance(value, list):
        return [_masked(each, path) for each in value]
    if "accounts" in path or _secret_name(path[-1]):
        return HIDDEN
    return _without_password(value) if isinstance(value, str) else value


def _secret_name(name: str) -> bool:
    return name.lower().endswith(("key", "secret", "token", "password", "passphrase"))


def _without_password(text: str) -> str:
    scheme, separator, rest = text.partition("://")
    if not separator or "@" not in rest:
        return text
    user, _, place = rest.rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{scheme}://{name}{':' + HIDDEN if colon else ''}@{place}"


def _leaves(values: Mapping[str, Any], path: tuple[str, ...]) -> list[tuple[tuple[str, ...], Any]]:
    found: list[tuple[tuple[str, ...], Any]] = []
    for name, value in values.items():
        if isinstance(value, Mapping) and value and set(value) not in _REFERENCES:
            found += _leaves(value, (*path, name))
        else:
            found.append(((*path, name), value))
    return found
