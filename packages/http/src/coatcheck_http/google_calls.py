"""The base of handlers of Google's APIs: access tokens, and errors."""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus
from typing import ClassVar, TypeVar, cast

from coatcheck.errors import ConfigurationError, SubmitDeferred
from coatcheck.handler import CallContext
from coatcheck_http.accounts import Accounts, ApiKey, header_value
from coatcheck_http.google import GoogleServiceAccount, read_token, token_request
from coatcheck_http.google_status import ERROR_CLASSES
from coatcheck_http.handler import HttpHandler
from coatcheck_http.messages import HttpRequest
from coatcheck_http.settings import HttpSettings
from coatcheck_http.tokens import MintedToken, TokenCache

__all__ = ["GoogleCalls"]

P = TypeVar("P", contravariant=True)  # noqa: PLC0105 - named as in `Handler`


class GoogleCalls(HttpHandler[P]):
    """A handler whose account is a `GoogleServiceAccount`, or an `ApiKey` with a ready access token.

    Put it before the other base: ``class DocumentAiOcr(GoogleCalls[OcrRequest], OcrHandler)``.
    """

    error_code_paths = ("error.status", "error")
    error_codes = ERROR_CLASSES
    token_fresh: ClassVar[timedelta] = timedelta(seconds=30)
    """A token that was minted so lately is not to blame if it is refused."""

    def __init__(
        self, accounts: Accounts = None, *, key: str | None = None, settings: HttpSettings | None = None
    ) -> None:
        """Take accounts and settings; no I/O."""
        super().__init__(accounts, key=key, settings=settings)
        self._tokens: TokenCache[GoogleServiceAccount] = TokenCache(self._mint, fresh=self.token_fresh)

    async def authenticate(self, request: HttpRequest, context: CallContext) -> HttpRequest:
        """Return the request with an access token, the account's or one that is minted of its key."""
        account = self.account(context, object)
        if isinstance(account, GoogleServiceAccount):
            token = await self._tokens.get(account)
        elif isinstance(account, ApiKey):
            token = account.api_key
        else:
            message = (
                f"an account of handler {self.key!r} is a GoogleServiceAccount or an ApiKey, "
                f"not a {type(account).__qualname__}"
            )
            raise ConfigurationError(message)
        return request.with_headers(authorization=f"Bearer {header_value(token)}")

    def credentials_refused(self, context: CallContext) -> bool:
        """Drop a minted token that the provider refused, unless it is new: then something else is wrong."""
        return self._tokens.refused(cast("GoogleServiceAccount", self.account(context, object)))

    async def _mint(self, account: GoogleServiceAccount) -> MintedToken:
        """Get an access token.

        Raises:
            SubmitDeferred: there is none to be had; queries make an error of their own of it.
        """
        response = await self.request_token(await token_request(account))
        minted = read_token(response)
        if minted is not None:
            return minted
        error = self.error_of(response)
        raise SubmitDeferred(
            f"Google gives no access token: HTTP {error.status} {error.code or ''} {error.message}",
            code=error.code or "no_token",
            retry_after=timedelta(minutes=1),
            blames_provider=not HTTPStatus.BAD_REQUEST <= error.status < HTTPStatus.INTERNAL_SERVER_ERROR,
        )

    def known_secrets(self, context: CallContext) -> tuple[str, ...]:
        """Return what must not show: beside the account's secrets the token that was minted of them."""
        secrets = super().known_secrets(context)
        if not secrets:
            return secrets
        minted = self._tokens.peek(cast("GoogleServiceAccount", self.account(context, object)))
        return secrets if minted is None else (*secrets, minted.reveal())
