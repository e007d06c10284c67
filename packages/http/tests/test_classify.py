import pytest

from coatcheck_http import ErrorClass, classify


@pytest.mark.parametrize(
    ("code", "status", "message", "found"),
    [
        (None, 429, "", ErrorClass.RATE_LIMITED),
        ("rate_limit_exceeded", 400, "", ErrorClass.RATE_LIMITED),
        ("Throttling.RateQuota", 429, "", ErrorClass.RATE_LIMITED),
        ("TooManyRequests", 200, "", ErrorClass.RATE_LIMITED),
        ("ConcurrencyLimitReached", 429, "", ErrorClass.CONCURRENCY_LIMITED),
        ("insufficient_quota", 429, "", ErrorClass.QUOTA_OR_BILLING),
        ("credit_balance_exhausted", 400, "", ErrorClass.QUOTA_OR_BILLING),
        ("Arrearage", 400, "", ErrorClass.QUOTA_OR_BILLING),
        (None, 402, "", ErrorClass.QUOTA_OR_BILLING),
        (None, 429, "account balance too low", ErrorClass.QUOTA_OR_BILLING),
        (None, 400, "account balance too low", ErrorClass.INVALID_REQUEST),
        ("InvalidApiKey", 400, "", ErrorClass.AUTH),
        (None, 401, "", ErrorClass.AUTH),
        (None, 403, "", ErrorClass.AUTH),
        ("DataInspectionFailed", 400, "", ErrorClass.MODERATION),
        ("file_too_large", 400, "", ErrorClass.TOO_LARGE),
        (None, 413, "", ErrorClass.TOO_LARGE),
        ("unsupported_format", 400, "", ErrorClass.UNSUPPORTED_INPUT),
        ("invalid_parameter", 400, "", ErrorClass.INVALID_REQUEST),
        ("file_not_found", 400, "", ErrorClass.INVALID_REQUEST),
        (None, 404, "", ErrorClass.NOT_FOUND_OR_EXPIRED),
        (None, 410, "", ErrorClass.NOT_FOUND_OR_EXPIRED),
        (None, 408, "", ErrorClass.PROVIDER_UNAVAILABLE),
        (None, 500, "", ErrorClass.PROVIDER_UNAVAILABLE),
        (None, 599, "", ErrorClass.PROVIDER_UNAVAILABLE),
        ("server_overloaded", 200, "", ErrorClass.PROVIDER_UNAVAILABLE),
        ("4711", 200, "", ErrorClass.UNKNOWN),
        (None, 302, "", ErrorClass.UNKNOWN),
        ("", 499, "", ErrorClass.INVALID_REQUEST),
    ],
)
def test_the_code_goes_before_the_status(
    code: str | None, status: int, message: str, found: ErrorClass
) -> None:
    """The body's code says more than the HTTP status, and a 429 about money is told apart."""
    assert classify(code, status, message) is found
