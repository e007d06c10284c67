"""Real servers for tests: private, thrown away, and never those that run on the machine.

`fixtures.py` is the pytest plugin; CONTRIBUTING.md says how the servers are found. A test that stops or kills its
server takes one of its `own`; all others share one per kind. `FaultProxy` is a bad network in front of one.
"""

from servers.errors import NoServer, ServerError, ServerFailed
from servers.proxy import Direction, FaultProxy
from servers.server import OwnServer, Server, close_all
from servers.session import Kind, own, pgbouncer_before, release, shared

__all__ = [
    "Direction",
    "FaultProxy",
    "Kind",
    "NoServer",
    "OwnServer",
    "Server",
    "ServerError",
    "ServerFailed",
    "close_all",
    "own",
    "pgbouncer_before",
    "release",
    "shared",
]
