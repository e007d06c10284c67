"""The app that the demo's processes share: a web process would have the same lines."""

from datetime import timedelta

from coatcheck import App, ExponentialRetry
from coatcheck_handler_ocr import ApiKey, GiteeOcr, HttpSettings

API_KEY = "sandbox-key"


def make_app(store_url: str, provider_url: str) -> App:
    """Return the app over a store, with the OCR provider of the sandbox at `provider_url`."""
    settings = HttpSettings(base_url=f"{provider_url}/gitee/v1", allow_private=True)
    retry = ExponentialRetry(initial=timedelta(milliseconds=300), maximum=timedelta(seconds=1))
    return App(store_url, [GiteeOcr(ApiKey(API_KEY), settings=settings)], retry=retry)
