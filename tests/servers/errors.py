"""What may be wrong with a server for tests.

ServerError
├── NoServer       the machine has none: its tests are skipped, or fail where it is required
└── ServerFailed   there is one, but it does not start, stop or answer
"""


class ServerError(Exception):
    """A server for tests is not to be had."""


class NoServer(ServerError):
    """The machine has none; the message says how it could get one."""


class ServerFailed(ServerError):
    """It does not do what it should; the message holds its log."""
