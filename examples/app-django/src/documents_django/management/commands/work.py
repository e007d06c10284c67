"""`manage.py work`: a worker, beside the web processes; start as many as you like."""

import asyncio

from django.core.management.base import BaseCommand

from coatcheck import App
from documents_django.jobs import compose


class Command(BaseCommand):
    """Works until a signal ends it, and then lets what it has begun finish."""

    help = "Submit what waits, and query what runs, until SIGTERM or Ctrl-C."

    def handle(self, *_: object, **__: object) -> None:
        """Run a worker."""
        asyncio.run(work())


async def work() -> None:
    """Open the app and run a worker of it."""
    async with compose(App) as app:
        await app.worker().run()
