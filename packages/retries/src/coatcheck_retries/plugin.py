"""What coatcheck finds by the entry point: the retry policies, by name."""

from coatcheck.hooks import RetryDescriptor, hookimpl

__all__ = ["coatcheck_retry_policies"]


def _policy(key: str, where: str, summary: str) -> RetryDescriptor:
    return RetryDescriptor(
        key=key, factory=f"coatcheck_retries.{where}", settings=f"coatcheck_retries.{where}", summary=summary
    )


@hookimpl
def coatcheck_retry_policies() -> list[RetryDescriptor]:
    """Return the policies of this distribution."""
    return [
        _policy("full-jitter", "paces:FullJitterRetry", "exponential delays, left to chance as a whole"),
        _policy("equal-jitter", "paces:EqualJitterRetry", "exponential delays, half of them left to chance"),
        _policy("fixed", "paces:FixedRetry", "always the same interval"),
        _policy("proportional", "paces:ProportionalRetry", "a share of the age of the job"),
        _policy("learned", "learning:LearnedRetry", "when the job is likely to be done"),
        _policy("per-handler", "handlers:PerHandlerRetry", "a policy for each handler"),
    ]
