"""Configuration: what an app is made of, written in TOML or in environment variables.

In this order, what comes first counts: environment variables, the file. The file is the one that is named, or that
the variable `COATCHECK_CONFIG` names, or ``coatcheck.toml`` in the working directory, or else the table
``[tool.coatcheck]`` of ``pyproject.toml`` there. Secrets are not written, but referred to: ``{env = "NAME"}`` or
``{file = "/run/secrets/name"}``.
"""

from coatcheck.configuration.model import (
    Configuration,
    GateConfiguration,
    HandlerConfiguration,
    PluginConfiguration,
    RetentionConfiguration,
    WorkerConfiguration,
)
from coatcheck.configuration.reading import Written, load_configuration, read_written

__all__ = [
    "Configuration",
    "GateConfiguration",
    "HandlerConfiguration",
    "PluginConfiguration",
    "RetentionConfiguration",
    "WorkerConfiguration",
    "Written",
    "load_configuration",
    "read_written",
]
