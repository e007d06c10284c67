"""Volcengine: accounts, and signatures of requests.

The signature is made as by ``volcengine/auth/SignerV4.py`` and ``volcengine/util/Util.py`` of
volcengine/volc-sdk-python (at 0045f01d and 05629467, read in 2026): HMAC-SHA256 over the whole request, in four steps
as Amazon's Version 4, with other words. Nothing was tried against the live service. Session tokens are not supported.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from attrs import field, frozen

from coatcheck.errors import ConfigurationError
from coatcheck.secret import Secret
from coatcheck_http import HttpRequest, as_secret, header_value

__all__ = ["VolcengineAccount", "sign"]

_ALGORITHM = "HMAC-SHA256"
_END = "request"
_KEPT = "-_.~"
_USUAL_PORTS = (":80", ":443")


@frozen(kw_only=True)
class VolcengineAccount:
    """An access key of Volcengine."""

    access_key_id: str
    """Not secret: it is part of every signature."""
    secret_access_key: Secret = field(converter=as_secret)
    """Never leaves the process: it only signs."""

    @classmethod
    def from_env(cls) -> VolcengineAccount:
        """Return the account of the environment variables of the provider's SDK, ``VOLC_ACCESSKEY`` and its secret.

        Raises:
            ConfigurationError: there is no access key id.
        """
        key_id = os.environ.get("VOLC_ACCESSKEY", "").strip()
        if not key_id:
            raise ConfigurationError("the environment variable VOLC_ACCESSKEY is not set")
        return cls(access_key_id=key_id, secret_access_key=Secret.from_env("VOLC_SECRETKEY"))


def sign(
    request: HttpRequest,
    account: VolcengineAccount,
    *,
    region: str,
    service: str,
    signed_at: datetime | None = None,
) -> HttpRequest:
    """Return an encoded request of an absolute URL, with its signature; nothing of it may change later.

    Raises:
        ConfigurationError: the account's credentials fit into no header.
    """
    at = (signed_at or datetime.now(UTC)).astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(request.content or b"").hexdigest()
    dated = request.with_headers(x_date=at, x_content_sha256=digest)
    parts = urlsplit(request.url)
    headers = {name.lower(): value.strip() for name, value in dated.headers.items()}
    signed = {name: headers[name] for name in headers if name == "content-type" or name.startswith("x-")}
    signed["host"] = _host(parts.netloc.rpartition("@")[2])
    names = ";".join(sorted(signed))
    canonical = "\n".join(
        (
            request.method,
            quote(parts.path or "/", safe="/%" + _KEPT),
            "&".join(
                f"{quote(name, safe=_KEPT)}={quote(request.query[name], safe=_KEPT)}"
                for name in sorted(request.query)
            ),
            "".join(f"{name}:{signed[name]}\n" for name in sorted(signed)),
            names,
            digest,
        )
    )
    scope = (at[:8], region, service, _END)
    text = "\n".join((_ALGORITHM, at, "/".join(scope), hashlib.sha256(canonical.encode("utf-8")).hexdigest()))
    key = header_value(account.secret_access_key).encode("ascii")
    for each in scope:
        key = hmac.digest(key, each.encode("ascii"), "sha256")
    credential = "/".join((header_value(Secret(account.access_key_id)), *scope))
    signature = hmac.digest(key, text.encode("ascii"), "sha256").hex()
    return dated.with_headers(
        authorization=f"{_ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
    )


def _host(netloc: str) -> str:
    """Return what the Host header will be: without a port that goes without saying."""
    for port in _USUAL_PORTS:
        netloc = netloc.removesuffix(port)
    return netloc.lower()
