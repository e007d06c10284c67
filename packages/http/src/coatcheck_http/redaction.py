"""Keeping secrets out of errors and logs."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

from coatcheck.errors import HandlerError

__all__ = ["redact", "redact_error", "short"]

HIDDEN = "***"
_SHORTEST = 4
"""Secrets with fewer characters are no secrets, and hiding them would spoil every message."""
_NAMED = re.compile(
    r"""(?ix)
    ( (?: [?&;\s"'{,(] | ^ )
      (?: (?:proxy-)? authorization | cookie | set-cookie | api[-_]?key | x-[a-z-]*(?:key|token)
        | ocp-apim-subscription-key | (?:access|refresh|id|session|security)?[-_]?token | jwt
        | password | passwd | secret | client_secret | secret[-_]?key | sk | sig | sign | signature
        | x-(?:amz|oss|goog|tos)-[a-z-]+
        | awsaccesskeyid | ossaccesskeyid | credential )
      ["']? \s* [:=] \s* ["']? (?: (?:bearer|basic|token|key) \s+ )? )
    [^\s"'&,;})]+
    """
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{8,}")


def _forms(secret: str) -> Iterable[str]:
    yield secret
    yield quote(secret, safe="")
    yield quote_plus(secret)
    yield base64.b64encode(secret.encode("utf-8", "surrogatepass")).decode("ascii")


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return `text` with ``***`` for these secrets, in any encoding, and for what is named like one."""
    forms = {form for secret in secrets if len(secret) >= _SHORTEST for form in _forms(secret)}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    text = _NAMED.sub(rf"\g<1>{HIDDEN}", text)
    return _BEARER.sub(rf"\1\2{HIDDEN}", text)


def redact_error(error: BaseException, secrets: Iterable[str]) -> None:
    """Redact the messages and codes of `error` and of all that led to it, in place."""
    hidden = tuple(secrets)
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.args = tuple(redact(one, hidden) if isinstance(one, str) else one for one in each.args)
        if isinstance(each, HandlerError) and each.code is not None:
            each.code = redact(each.code, hidden)
        if isinstance(each, BaseExceptionGroup):
            waiting.extend(each.exceptions)
        waiting += [each.__cause__, each.__context__]


def short(text: str, limit: int = 500) -> str:
    """Return `text` on one line, at most about `limit` characters long."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text[: 4 * limit]).split())
    return line if len(line) <= limit else f"{line[:limit]}..."
