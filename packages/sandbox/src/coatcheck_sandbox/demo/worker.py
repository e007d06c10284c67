"""One worker process of the demo: `python -m coatcheck_sandbox.demo.worker FOLDER PROVIDER_URL KEY`."""

import asyncio
import logging
import sys
from datetime import timedelta

from coatcheck_sandbox.demo.app import make_app


async def work(folder: str, provider_url: str, key: str) -> None:
    """Work until told to stop; leases are short, so that the demo sees a dead worker's tasks rescued."""
    app = make_app(folder, provider_url, key)
    async with app:
        worker = app.worker(
            submissions=2, queries=8, lease=timedelta(seconds=6), call_timeout=timedelta(seconds=5)
        )
        await worker.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(work(*sys.argv[1:4]))
