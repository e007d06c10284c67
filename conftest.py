"""What all tests of the workspace share."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["servers.fixtures"]

# machines are shared and noisy: how long an example takes says nothing about what is right
settings.register_profile("workspace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("workspace")
