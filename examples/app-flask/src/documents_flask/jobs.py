"""What the web processes and the workers share: the settings, and the app of coatcheck, in both its forms."""

import os
from datetime import timedelta
from typing import TypeVar

from attrs import frozen

from coatcheck import App, ExponentialRetry, Secret, sync
from coatcheck_handler_ocr import ApiKey, DatalabOcr, HttpSettings

A = TypeVar("A", App, sync.App)


@frozen(kw_only=True)
class Settings:
    """What differs from place to place. Keys are not among it: they are read where they are used."""

    database_url: str = "sqlite:///documents.db"
    """Where tasks and documents are, together."""
    provider_url: str | None = None
    """A gateway or the sandbox; None is the provider itself."""
    public_url: str | None = None
    """Where the provider reaches this application; None asks for no callbacks."""

    @classmethod
    def from_env(cls) -> "Settings":
        """Return the settings of this process."""
        return cls(
            database_url=os.environ.get("DATABASE_URL", "sqlite:///documents.db"),
            provider_url=os.environ.get("DATALAB_URL"),
            public_url=os.environ.get("PUBLIC_URL"),
        )


def compose(kind: type[A], settings: Settings) -> A:
    """Return the app, with blocking methods or without; nothing is opened, and no secret is read."""
    called_back = settings.public_url is not None
    account = ApiKey(
        Secret.from_env("DATALAB_API_KEY"),
        callback_secret=Secret.from_env("CALLBACK_SECRET") if called_back else None,
    )
    return kind(
        settings.database_url,
        [DatalabOcr(account, settings=HttpSettings(base_url=settings.provider_url))],
        callback_url=f"{settings.public_url}/callbacks/{{handler_key}}" if called_back else None,
        # a provider that calls back need not be asked often, but must be: callbacks get lost
        retry=ExponentialRetry(initial=timedelta(minutes=1), maximum=timedelta(minutes=5))
        if called_back
        else None,
    )


def worker_app() -> App:
    """Return the app for workers: ``coatcheck --app documents_flask.jobs:worker_app worker``."""
    return compose(App, Settings.from_env())
