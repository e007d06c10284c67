"""What the web process and the workers share: the settings, and the app of coatcheck."""

import os
from datetime import timedelta

from attrs import frozen

from coatcheck import App, ExponentialRetry, Secret
from coatcheck_handler_ocr import ApiKey, DatalabOcr, HttpSettings


@frozen(kw_only=True)
class Settings:
    """What differs from place to place. Keys are not among it: they are read where they are used."""

    database_url: str = "sqlite:///documents.db"
    """Where tasks and documents are, together."""
    provider_url: str | None = None
    """A gateway or the sandbox; None is the provider itself."""
    public_url: str | None = None
    """Where the provider reaches this application; None asks for no callbacks."""
    embed_worker: bool = False
    """Whether the web process works, too: good for development, and for small services."""

    @classmethod
    def from_env(cls) -> "Settings":
        """Return the settings of this process."""
        return cls(
            database_url=os.environ.get("DATABASE_URL", "sqlite:///documents.db"),
            provider_url=os.environ.get("DATALAB_URL"),
            public_url=os.environ.get("PUBLIC_URL"),
            embed_worker=os.environ.get("EMBED_WORKER") == "1",
        )


def make_app(settings: Settings | None = None) -> App:
    """Return the app; nothing is opened, and no secret is read. Workers run with this very function."""
    settings = settings or Settings.from_env()
    called_back = settings.public_url is not None
    account = ApiKey(
        Secret.from_env("DATALAB_API_KEY"),
        callback_secret=Secret.from_env("CALLBACK_SECRET") if called_back else None,
    )
    return App(
        settings.database_url,
        [DatalabOcr(account, settings=HttpSettings(base_url=settings.provider_url))],
        callback_url=f"{settings.public_url}/callbacks/{{handler_key}}" if called_back else None,
        # a provider that calls back need not be asked often, but must be: callbacks get lost
        retry=ExponentialRetry(initial=timedelta(minutes=1), maximum=timedelta(minutes=5))
        if called_back
        else None,
    )
