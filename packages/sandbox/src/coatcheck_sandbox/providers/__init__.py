"""The wire protocols of real providers, one module each."""

from coatcheck_sandbox.protocol import WireProtocol
from coatcheck_sandbox.providers.gitee import GiteeProtocol

__all__ = ["all_protocols"]


def all_protocols(*, key: str = "sandbox-key") -> list[WireProtocol]:
    """Every protocol, with `key` as the credential that each asks for."""
    return [GiteeProtocol(key=key)]
