"""Amazon Web Services: accounts, where an object in S3 is, and signatures.

The signature (Signature Version 4) is calculated by botocore, which the extra `textract` brings. It is imported
with the first request, in a thread, because that takes a good part of a second.
"""

from __future__ import annotations

import asyncio
import os
import re
from datetime import UTC, datetime
from importlib import import_module
from typing import Any
from urllib.parse import unquote, urlsplit

from attrs import field, frozen
from attrs.converters import optional

from coatcheck.errors import ConfigurationError, InvalidParams
from coatcheck.secret import Secret
from coatcheck_http import HttpRequest, as_secret, header_value, shown

__all__ = ["AwsAccount", "S3Object", "s3_object", "sign"]

_HOST = re.compile(
    r"(?:(?P<bucket>[a-z0-9][a-z0-9.-]+)\.)?s3(?:\.(?P<region>[a-z]{2,}(?:-[a-z0-9]+)+))?\.amazonaws\.com(?:\.cn)?"
)
"""Virtual-hosted and path-style; read from botocore 1.44.8, `data/s3/2006-03-01/endpoint-rule-set-1.json`."""
_BUCKET = re.compile(r"[0-9A-Za-z.\-_]{3,255}")
_MAX_KEY_CHARACTERS = 1024
_SESSION = "AWS_SESSION_TOKEN"
_SIGNED_AT = "%Y%m%dT%H%M%SZ"


@frozen(kw_only=True)
class AwsAccount:
    """An access key of Amazon Web Services."""

    access_key_id: str
    """Not secret: it is part of every signature."""
    secret_access_key: Secret = field(converter=as_secret)
    """Never leaves the process: it only signs."""
    session_token: Secret | None = field(default=None, converter=optional(as_secret))
    """Of temporary credentials. These end, so give accounts as a function that renews them."""

    @classmethod
    def from_env(cls) -> AwsAccount:
        """Return the account of the usual environment variables, such as ``AWS_ACCESS_KEY_ID``.

        Raises:
            ConfigurationError: there is no access key id.
        """
        key_id = os.environ.get("AWS_ACCESS_KEY_ID", "").strip()
        if not key_id:
            raise ConfigurationError("the environment variable AWS_ACCESS_KEY_ID is not set")
        return cls(
            access_key_id=key_id,
            secret_access_key=Secret.from_env("AWS_SECRET_ACCESS_KEY"),
            session_token=Secret.from_env(_SESSION) if os.environ.get(_SESSION) else None,
        )


@frozen(kw_only=True)
class S3Object:
    """An object in a bucket."""

    bucket: str
    key: str
    region: str | None = None
    """Of the bucket, where the URL tells."""


def s3_object(url: str) -> S3Object:
    """Return the object that ``s3://bucket/key`` or an https URL of S3 names.

    The key stands as it is in the former, and percent-encoded in the latter.

    Raises:
        InvalidParams: it names none, or has a query, such as a presigned one.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise _refused(url, "is malformed") from None
    if parts.scheme.lower() == "s3":
        bucket, _, key = url.partition("://")[2].partition("/")
        return _checked(url, S3Object(bucket=bucket, key=key))
    found = _HOST.fullmatch(host) if parts.scheme.lower() == "https" and parts.port in {None, 443} else None
    if found is None:
        raise _refused(url, "is not in S3")
    if parts.query:
        raise _refused(url, "has a query; the provider reads with the rights of the account, so leave it out")
    bucket, key = found["bucket"], parts.path.removeprefix("/")
    if bucket is None:
        bucket, _, key = key.partition("/")
    if parts.fragment:
        key = f"{key}#{parts.fragment}"
    return _checked(url, S3Object(bucket=bucket, key=unquote(key), region=found["region"]))


def _checked(url: str, found: S3Object) -> S3Object:
    if not _BUCKET.fullmatch(found.bucket):
        raise _refused(url, f"names no bucket ({found.bucket!r})")
    if not found.key.strip() or len(found.key) > _MAX_KEY_CHARACTERS:
        raise _refused(url, f"names no key of 1 to {_MAX_KEY_CHARACTERS} characters")
    if "#" in found.key:
        raise _refused(url, "has a # in its key, which the provider does not take; copy the object")
    return found


def _refused(url: str, why: str) -> InvalidParams:
    return InvalidParams(
        f"url {shown(url)!r} {why}; the provider reads from S3 alone: upload the document to a bucket and submit "
        "s3://bucket/key"
    )


async def sign(request: HttpRequest, account: AwsAccount, *, region: str, service: str) -> HttpRequest:
    """Return an encoded request of an absolute URL, with its signature of now; no header of it may change later.

    Raises:
        ConfigurationError: botocore is not installed, or the account's credentials fit into no header.
    """
    auth, awsrequest, credentials = await asyncio.to_thread(_load)
    signer = auth.SigV4Auth(
        credentials.Credentials(
            header_value(Secret(account.access_key_id)), header_value(account.secret_access_key)
        ),
        service,
        region,
    )
    signed_at = datetime.now(UTC).strftime(_SIGNED_AT)
    dated = request.with_headers(x_amz_date=signed_at)
    if account.session_token is not None:
        dated = dated.with_headers(x_amz_security_token=header_value(account.session_token))
    draft = awsrequest.AWSRequest(
        method=dated.method, url=dated.url, headers=dict(dated.headers), data=dated.content or b""
    )
    draft.context["timestamp"] = signed_at
    # its add_auth() would write the session token into a log
    text = signer.string_to_sign(draft, signer.canonical_request(draft))
    names = signer.signed_headers(signer.headers_to_sign(draft))
    return dated.with_headers(
        authorization=(
            f"AWS4-HMAC-SHA256 Credential={signer.scope(draft)}, SignedHeaders={names}, "
            f"Signature={signer.signature(text, draft)}"
        )
    )


def _load() -> tuple[Any, Any, Any]:
    """Import what signs."""
    try:
        auth, awsrequest, credentials = (
            import_module(f"botocore.{name}") for name in ("auth", "awsrequest", "credentials")
        )
    except ImportError as error:
        message = (
            "requests to AWS are signed by botocore, which is not installed: "
            "run pip install 'coatcheck-handler-ocr[textract]'"
        )
        raise ConfigurationError(message) from error
    return auth, awsrequest, credentials
