"""What core itself brings, offered through the same door as any plugin's."""

from __future__ import annotations

from coatcheck.hooks import AdmissionDescriptor, RetryDescriptor, StoreDescriptor, hookimpl

__all__ = ["coatcheck_admission_policies", "coatcheck_retry_policies", "coatcheck_stores"]


@hookimpl
def coatcheck_stores() -> list[StoreDescriptor]:
    """Return the memory store."""
    return [
        StoreDescriptor(
            key="memory",
            factory="coatcheck.memory:create",
            settings="coatcheck.memory:MemorySettings",
            capabilities=("notifies",),
            summary="In this process only, and gone with it: for tests and trials",
        )
    ]


@hookimpl
def coatcheck_retry_policies() -> list[RetryDescriptor]:
    """Return the exponential retry policy."""
    return [
        RetryDescriptor(
            key="exponential",
            factory="coatcheck.retry:ExponentialRetry",
            settings="coatcheck.retry:ExponentialRetry",
            summary="Growing delays with jitter, which honour the provider's hints",
        )
    ]


@hookimpl
def coatcheck_admission_policies() -> list[AdmissionDescriptor]:
    """Return the standard admission policy."""
    return [
        AdmissionDescriptor(
            key="standard",
            factory="coatcheck.gates:StandardAdmission",
            settings="coatcheck.gates:StandardAdmission",
            summary="Gates of the provider, the account and the tenant",
        )
    ]
