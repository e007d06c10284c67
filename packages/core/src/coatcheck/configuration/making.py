"""From a configuration to the objects that an app is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypedDict

import attrs

from coatcheck.catalog import Catalog, discover
from coatcheck.configuration.model import Configuration
from coatcheck.configuration.reading import Written
from coatcheck.errors import ConfigurationError, PluginError
from coatcheck.gates import AdmissionPolicy, Gate
from coatcheck.handler import AnyHandler
from coatcheck.retry import RetryPolicy
from coatcheck.selector import Selector
from coatcheck.store import Store

__all__ = ["AppParts", "Unusable", "catalog_of", "gates_of", "parts_of", "worker_settings_of"]


class AppParts(TypedDict):
    """What `App` is called with."""

    store: Store
    handlers: list[AnyHandler]
    selector: Selector | None
    retry: RetryPolicy | None
    admission: AdmissionPolicy | None
    priority_ageing: Any
    callback_url: str | None


def catalog_of(configuration: Configuration) -> Catalog:
    """Return the plugins that may be used."""
    plugins = configuration.plugins
    return discover(allow=plugins.allow, block=plugins.block, prefer=plugins.prefer)


Unusable = Callable[[str, ConfigurationError], None]
"""Told the key of a handler that cannot be made, and why; it is left out, unless this raises."""


def parts_of(
    configuration: Configuration,
    catalog: Catalog | None = None,
    *,
    written: Written | None = None,
    unusable: Unusable | None = None,
) -> AppParts:
    """Return closed objects; no I/O is done, and no credential is read.

    Args:
        configuration: what to make.
        catalog: the plugins that may be used; None is those of the configuration.
        written: where it is written, for the beginning of messages.
        unusable: is told of handlers that cannot be made, which are left out; None raises what is wrong with them.

    Raises:
        ConfigurationError: nothing offers one of them (the message says what to install), or its settings or
            accounts do not fit.
        PluginError: the plugin that offers one is broken, incompatible, blocked or in conflict.
    """
    plugins = catalog_of(configuration) if catalog is None else catalog
    handlers = []
    for key, each in configuration.handlers.items():
        try:
            with _placed(written, "handlers", key):
                handler = plugins.create_handler(
                    key, use=each.use, accounts=dict(each.accounts) or None, settings=each.settings or None
                )
        except ConfigurationError as error:
            if unusable is None:
                raise
            unusable(key, error)
        else:
            handlers.append(handler)
    store = dict(configuration.store)
    with _placed(written, "store"):
        made_store = plugins.create_store(store.pop("url"), **store)
    with _placed(written, "selector"):
        selector = _made(plugins.create_selector, configuration.selector)
    with _placed(written, "retry"):
        retry = _made(plugins.create_retry_policy, configuration.retry)
    with _placed(written, "admission"):
        admission = _made(plugins.create_admission_policy, configuration.admission)
    return AppParts(
        store=made_store,
        handlers=handlers,
        selector=selector,
        retry=retry,
        admission=admission,
        priority_ageing=configuration.priority_ageing,
        callback_url=configuration.callback_url,
    )


@contextmanager
def _placed(written: Written | None, *path: str) -> Iterator[None]:
    """Let errors begin with where that is written which cannot be made."""
    try:
        yield
    except ConfigurationError as error:
        if written is None:
            raise
        kind = PluginError if isinstance(error, PluginError) else ConfigurationError
        raise kind(f"{written.place(*path)}: {error}") from error


def gates_of(configuration: Configuration) -> list[Gate]:
    """Return the gates with the limits that are configured, by name."""
    return [
        Gate(name=name, concurrency=each.concurrency, rate=each.rate)
        for name, each in sorted(configuration.gates.items())
    ]


def worker_settings_of(configuration: Configuration) -> dict[str, Any]:
    """Return the fields of `WorkerSettings` that are configured."""
    found = attrs.asdict(configuration.worker, recurse=False)
    del found["processes"]
    return found


def _made(create: Any, written: str | Mapping[str, Any] | None) -> Any:  # noqa: ANN401 - of three kinds
    if written is None:
        return None
    if isinstance(written, str):
        return create(written)
    settings = {name: value for name, value in written.items() if name != "use"}
    return create(written["use"], settings)
