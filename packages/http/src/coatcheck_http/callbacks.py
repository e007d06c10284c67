"""Callbacks: addresses that providers may call, and telling authentic calls from forged, unsigned and stale ones.

What handlers use in `parse_callback`. Every check returns nothing, or what it found, if the callback is good, and
raises `CallbackRejected` if it is not, whatever was sent. `ConfigurationError` means that our own secrets or keys
cannot be used; it is raised before the callback is looked at, so that the first one shows it. Digests are compared
in constant time, and no message holds a secret, a token or a signature, neither ours nor the caller's.

The scheme of `check_standard_webhook` is that of "Standard Webhooks" 1.0.0 (`spec/standard-webhooks.md` of
standard-webhooks/standard-webhooks at 03f5f8c, read in 2026), symmetric signatures only. Nothing here was tried
against a live service.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Literal, Never, TypeAlias
from urllib.parse import quote, unquote_plus, urlsplit

from coatcheck.errors import CallbackRejected, ConfigurationError, InvalidParams
from coatcheck.handler import CallbackRequest
from coatcheck.task import JSON
from coatcheck_http.extract import first_text
from coatcheck_http.urls import origin_of

__all__ = [
    "SignatureEncoding",
    "callback_header",
    "callback_ids",
    "callback_json",
    "check_ed25519",
    "check_hmac_sha256",
    "check_own_callback",
    "check_shared_header",
    "check_standard_webhook",
    "check_timestamp",
    "own_callback_url",
    "signature_bytes",
]

SignatureEncoding: TypeAlias = Literal["hex", "base64"]
"""How a provider writes the bytes of a signature as text."""

TOLERANCE = timedelta(minutes=5)
"""How far a timestamp may be from now, unless the handler says otherwise."""
MAX_ID_CHARACTERS = 1024
"""What claims to be a job's id and is longer is none: stores remember ids that they do not know yet."""

_TASK, _TOKEN = "task", "token"
_LABEL = b"coatcheck callback of task\x00"
"""Goes before the task's id, so that no token is also the provider's signature of something under the same secret."""
_SHOWN_CHARACTERS = 40
_KEY_BYTES = 32


def own_callback_url(url: str, task_id: str, secret: str) -> str:
    """Return `url` with the task's id and a token for it in its query, for a provider that signs nothing.

    The rest of the query stays as it is. Whoever holds the address can call it, as often as they like, until
    `secret` changes: it proves who was told it, and nothing about the body.

    Raises:
        ConfigurationError: `url` is no absolute http or https URL, or `secret` is blank.
    """
    key = _key_of(secret)
    try:
        origin_of(url)
    except InvalidParams as error:
        message = f"the application's callback URL cannot be used: {error}"
        raise ConfigurationError(message) from error
    parts = urlsplit(url)
    kept = [each for each in parts.query.split("&") if each and not _is_ours(each)]
    ours = [f"{_TASK}={quote(task_id, safe='')}", f"{_TOKEN}={_token_of(task_id, key)}"]
    return parts._replace(query="&".join(kept + ours)).geturl()


def check_own_callback(request: CallbackRequest, secret: str) -> str:
    """Return the id of the task for which `own_callback_url` made the address that was called.

    Raises:
        CallbackRejected: the query has no task or token, or the token is not the task's.
        ConfigurationError: `secret` is blank.
    """
    key = _key_of(secret)
    task_id, token = request.query.get(_TASK, ""), request.query.get(_TOKEN, "")
    if not task_id or not token:
        message = f"the callback is unsigned: the query of its address has no {_TASK!r} or no {_TOKEN!r}"
        raise CallbackRejected(message)
    if not hmac.compare_digest(_as_bytes(token), _token_of(task_id, key).encode("ascii")):
        raise CallbackRejected("the token in the callback's address is not that of the task named beside it")
    return task_id


def _is_ours(parameter: str) -> bool:
    return unquote_plus(parameter.partition("=")[0]) in {_TASK, _TOKEN}


def _token_of(task_id: str, key: bytes) -> str:
    return hmac.digest(key, _LABEL + _as_bytes(task_id), "sha256").hex()


def check_standard_webhook(
    request: CallbackRequest,
    secrets: Sequence[str],
    *,
    prefix: str = "webhook-",
    now: datetime | None = None,
    tolerance: timedelta = TOLERANCE,
) -> None:
    """Accept a callback that is signed as Standard Webhooks are; Svix calls its headers ``svix-...`` (`prefix`).

    Any signature of the callback may match any of `secrets`, ``whsec_`` and a key in base64 each: during a rotation
    there are two of them.

    Raises:
        CallbackRejected: a header is missing, there is no ``v1`` signature or none that matches, or the time of
            signing is further than `tolerance` from `now`, in either direction.
        ConfigurationError: there is no secret, or one is no base64.
    """
    keys = _standard_keys(secrets)
    message_id = callback_header(request, f"{prefix}id")
    timestamp = callback_header(request, f"{prefix}timestamp")
    versioned = callback_header(request, f"{prefix}signature").split()
    given = [_as_bytes(each.removeprefix("v1,")) for each in versioned if each.startswith("v1,")]
    if not given:
        message = f"the callback's {prefix}signature holds no signature of version v1"
        raise CallbackRejected(message)
    check_timestamp(timestamp, now=now, tolerance=tolerance)
    content = _as_bytes(f"{message_id}.{timestamp}.") + request.body
    right = [base64.b64encode(hmac.digest(key, content, "sha256")) for key in keys]
    if not any(hmac.compare_digest(mine, theirs) for mine in right for theirs in given):
        message = f"no signature in the callback's {prefix}signature is right under a secret of the account"
        raise CallbackRejected(message)


def _standard_keys(secrets: Sequence[str]) -> list[bytes]:
    if isinstance(secrets, str) or not secrets:
        message = "callbacks cannot be checked without a secret; give a list of one or, in a rotation, more"
        raise ConfigurationError(message)
    keys = []
    for number, secret in enumerate(secrets, start=1):
        try:
            keys.append(base64.b64decode(secret.removeprefix("whsec_"), validate=True))
        except ValueError as error:
            message = f"callback secret {number} of {len(secrets)} is no base64 after 'whsec_'; copy it again"
            raise ConfigurationError(message) from error
        if not keys[-1]:
            message = f"callback secret {number} of {len(secrets)} is blank, so anybody could sign"
            raise ConfigurationError(message)
    return keys


def check_timestamp(text: str, *, now: datetime | None = None, tolerance: timedelta = TOLERANCE) -> None:
    """Accept the time of signing, in Unix seconds, of a callback that is new; an old one may be a replay.

    It means nothing unless the signature covers it.

    Raises:
        CallbackRejected: it is no time, or further than `tolerance` from `now`, in either direction.
    """
    if re.fullmatch(r"[0-9]{1,11}", text) is None:
        message = f"the callback's timestamp {text[:_SHOWN_CHARACTERS]!r} is no number of Unix seconds"
        raise CallbackRejected(message)
    signed_at = datetime.fromtimestamp(int(text), UTC)
    age = (datetime.now(UTC) if now is None else now) - signed_at
    if abs(age) > tolerance:
        when = f"{abs(age).total_seconds():.0f} s {'ago' if age > timedelta(0) else 'ahead'}"
        message = (
            f"the callback was signed at {signed_at:%Y-%m-%dT%H:%M:%SZ}, {when}, and at most "
            f"{tolerance.total_seconds():g} s are taken; it is a replay, or a clock is wrong, maybe this machine's"
        )
        raise CallbackRejected(message)


def check_shared_header(request: CallbackRequest, name: str, secret: str) -> None:
    """Accept a callback with the header that the provider was asked to send, `secret` being its value.

    Raises:
        CallbackRejected: the header is missing, or has another value.
        ConfigurationError: `secret` is blank.
    """
    key = _key_of(secret)
    if not hmac.compare_digest(_as_bytes(callback_header(request, name)), key):
        message = f"the callback's {name} header is not the secret that the provider was asked to send"
        raise CallbackRejected(message)


def check_hmac_sha256(
    message: bytes, signature: str, secret: str, *, encoding: SignatureEncoding = "hex"
) -> None:
    """Accept `message`, as the provider says that it is put together, with its HMAC-SHA256 under `secret`.

    Raises:
        CallbackRejected: `signature` is not that of the message, or is no text in this encoding.
        ConfigurationError: `secret` is blank.
    """
    right = hmac.digest(_key_of(secret), message, "sha256")
    if not hmac.compare_digest(signature_bytes(signature, encoding), right):
        raise CallbackRejected("the callback's HMAC-SHA256 signature is not right under the account's secret")


def check_ed25519(message: bytes, signature: bytes, public_keys: Sequence[bytes]) -> None:
    """Accept `message` with an Ed25519 signature by the holder of any of `public_keys`, of 32 bytes each.

    Raises:
        CallbackRejected: no key verifies the signature.
        ConfigurationError: there is no key, one has not 32 bytes, or the extra ``ed25519`` is not installed.
    """
    try:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - large, and few providers sign so
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
    except ImportError as error:
        why = "Ed25519 signatures need the library 'cryptography'; pip install 'coatcheck-http[ed25519]'"
        raise ConfigurationError(why) from error
    if not public_keys:
        raise ConfigurationError("callbacks cannot be checked without a public key; give one at least")
    for number, key in enumerate(public_keys, start=1):
        if len(key) != _KEY_BYTES:
            why = f"public key {number} of {len(public_keys)} has {len(key)} bytes; Ed25519 keys have {_KEY_BYTES}"
            raise ConfigurationError(why)
    for key in public_keys:
        with suppress(InvalidSignature):
            Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
            return
    raise CallbackRejected("the callback's Ed25519 signature is not right under any of the public keys")


def signature_bytes(text: str, encoding: SignatureEncoding) -> bytes:
    """Return the bytes of a signature in hex, in upper or lower case, or in base64.

    Raises:
        CallbackRejected: `text` is something else.
    """
    try:
        return bytes.fromhex(text) if encoding == "hex" else base64.b64decode(text, validate=True)
    except ValueError as error:
        message = f"the callback's signature is no {encoding}"
        raise CallbackRejected(message) from error


def callback_header(request: CallbackRequest, name: str) -> str:
    """Return a header of the callback; `name` may be in any case.

    Raises:
        CallbackRejected: it is missing or blank.
    """
    value = request.headers.get(name.lower(), "")
    if not value.strip():
        message = f"the callback has no {name} header, or a blank one"
        raise CallbackRejected(message)
    return value


def callback_json(request: CallbackRequest) -> Mapping[str, JSON]:
    """Return the body, a JSON object in UTF-8.

    Raises:
        CallbackRejected: it is no UTF-8, no JSON (NaN is none), no object, or nested too deeply.
    """
    size = len(request.body)
    try:
        document: JSON = json.loads(request.body.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        message = f"the callback's body, of {size} bytes, is no JSON in UTF-8: {error}"
        raise CallbackRejected(message) from error
    if not isinstance(document, Mapping):
        message = f"the callback's body, of {size} bytes, is JSON, but no object"
        raise CallbackRejected(message)
    return document


def callback_ids(document: JSON, *paths: str) -> tuple[str, ...]:
    """Return the id of the job that a callback is about: the first that is there at one of `paths`.

    Paths are those of `coatcheck_http.lookup`. What is no text and no number is passed over.

    Raises:
        CallbackRejected: there is none, or it holds a lone surrogate, or is longer than `MAX_ID_CHARACTERS`.
    """
    found = first_text(document, *paths)
    if found is None:
        message = f"the callback names no job: there is no id at {' or '.join(paths)}"
        raise CallbackRejected(message)
    try:
        found.encode("utf-8")
    except UnicodeEncodeError as error:
        message = f"the callback names no job: {found[:_SHOWN_CHARACTERS]!r} holds a lone surrogate"
        raise CallbackRejected(message) from error
    if len(found) > MAX_ID_CHARACTERS:
        message = (
            f"the callback names no job: {found[:_SHOWN_CHARACTERS]!r}... has {len(found)} characters, "
            f"and an id has at most {MAX_ID_CHARACTERS}"
        )
        raise CallbackRejected(message)
    return (found,)


def _refuse_constant(word: str) -> Never:
    message = f"{word} is no JSON value"
    raise ValueError(message)


def _key_of(secret: str) -> bytes:
    if not secret.strip():
        raise ConfigurationError("the callback secret is blank, so anybody could sign; give the account one")
    return _as_bytes(secret)


def _as_bytes(text: str) -> bytes:
    """Return text from outside as bytes to compare, also if a server left lone surrogates in it."""
    return text.encode("utf-8", "surrogatepass")
