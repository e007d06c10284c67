"""The app of coatcheck, on Django's database: blocking for views, and not so for workers."""

from datetime import timedelta
from typing import TypeVar, cast

from django.conf import settings
from django.db import connection

from coatcheck import App, ExponentialRetry, Secret, sync
from coatcheck.task import TaskDraft
from coatcheck_handler_ocr import ApiKey, DatalabOcr, HttpSettings
from coatcheck_store_sql import SqlStore

A = TypeVar("A", App, sync.App)


def compose(kind: type[A]) -> A:
    """Return the app, with blocking methods or without; nothing is opened, and no secret is read."""
    called_back = settings.PUBLIC_URL is not None
    account = ApiKey(
        Secret.from_env("DATALAB_API_KEY"),
        callback_secret=Secret.from_env("CALLBACK_SECRET") if called_back else None,
    )
    return kind(
        f"sqlite:///{settings.DATABASES['default']['NAME']}",
        [DatalabOcr(account, settings=HttpSettings(base_url=settings.DATALAB_URL))],
        callback_url=f"{settings.PUBLIC_URL}/callbacks/{{handler_key}}" if called_back else None,
        # a provider that calls back need not be asked often, but must be: callbacks get lost
        retry=ExponentialRetry(initial=timedelta(minutes=1), maximum=timedelta(minutes=5))
        if called_back
        else None,
    )


app = compose(sync.App)
"""For views; it opens at its first call, in each process that forks."""


def add_in_transaction(draft: TaskDraft) -> None:
    """Add a task to the transaction that Django is in."""
    store = cast("SqlStore", app.store)
    with connection.cursor() as cursor:
        for sql, values in store.insert_statements([draft], paramstyle="format"):
            cursor.execute(sql, values)
