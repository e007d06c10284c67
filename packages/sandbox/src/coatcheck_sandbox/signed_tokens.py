"""Reading the tokens that clients make themselves: JWTs, signed by HMAC-SHA256."""

import base64
import hmac
import json
from collections.abc import Mapping

__all__ = ["read_jwt"]


def read_jwt(token: str, secret: str) -> tuple[Mapping[str, object], Mapping[str, object]] | None:
    """The header and the claims of a token; None if it is none, or was signed with another secret."""
    parts = token.split(".")
    if len(parts) != 3:  # noqa: PLR2004 - header, claims and signature
        return None
    signed = f"{parts[0]}.{parts[1]}".encode()
    right = base64.urlsafe_b64encode(hmac.digest(secret.encode(), signed, "sha256")).rstrip(b"=")
    if not hmac.compare_digest(right, parts[2].encode()):
        return None
    header, claims = (json.loads(base64.urlsafe_b64decode(part + "==")) for part in parts[:2])
    return header, claims
