"""The app that the demo's processes share: a web process would have the same lines."""

from datetime import timedelta
from pathlib import Path

from coatcheck import App, ExponentialRetry
from coatcheck_sandbox.demo.providers import VIDEO, make_handler

__all__ = ["make_app"]


def make_app(folder: str, provider_url: str, key: str) -> App:
    """Return the app over a store in `folder`, with the handler of this key for the sandbox at `provider_url`."""
    capture = Path(folder) / "videos" if key in VIDEO else None
    handler = make_handler(key, provider_url, capture=capture)
    handler.retry = ExponentialRetry(initial=timedelta(milliseconds=300), maximum=timedelta(seconds=1))
    return App(f"sqlite:///{Path(folder) / 'jobs.db'}", [handler])
