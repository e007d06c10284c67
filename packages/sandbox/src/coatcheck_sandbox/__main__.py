"""`python -m coatcheck_sandbox`: run a sandbox until interrupted; its URL is the first line printed."""

import argparse
import json
import re
import signal
import sys
import threading
from collections.abc import Sequence
from datetime import timedelta

from coatcheck_sandbox.errors import SandboxError
from coatcheck_sandbox.faults import Fault, fault_from_json
from coatcheck_sandbox.providers import all_protocols
from coatcheck_sandbox.recognize import describe
from coatcheck_sandbox.server import SandboxServer

_UNITS_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> timedelta:
    """The duration that `2s`, `500ms`, `1.5m` or `1h` means.

    Raises:
        ValueError: it is none of these.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no duration; write 500ms, 2s, 1.5m or 1h")
    return timedelta(seconds=float(found[1]) * _UNITS_SECONDS[found[2]])


def _fault(text: str) -> Fault:
    return fault_from_json(json.loads(text))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m coatcheck_sandbox",
        description="A provider on this machine. Prints its URL and runs until interrupted.",
    )
    parser.add_argument(
        "--port", type=int, default=0, help="where to listen on 127.0.0.1 (default: a free port)"
    )
    parser.add_argument(
        "--delay", type=parse_duration, default=timedelta(0), help="how long jobs take, as 2s or 500ms"
    )
    parser.add_argument("--key", default="sandbox-key", help="the API key to ask for (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=0, help="for the chances of faults (default: %(default)s)"
    )
    parser.add_argument(
        "--without-ocr", action="store_true", help="describe documents instead of reading them"
    )
    parser.add_argument(
        "--fault",
        type=_fault,
        action="append",
        default=[],
        metavar="JSON",
        help='a fault to begin with, as \'{"kind": "drop", "when": "after"}\'; repeatable',
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM; 0 after a clean end, 2 if it can't start."""
    parser = _parser()
    try:
        options = parser.parse_args(arguments)
        sandbox = SandboxServer(
            protocols=all_protocols(key=options.key),
            recognizer=describe if options.without_ocr else None,
            delay=options.delay,
            port=options.port,
            seed=options.seed,
        )
    except SandboxError as error:
        parser.error(str(error))
    sandbox.faults.add(*options.fault)
    interrupted = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: interrupted.set())
    with sandbox:
        sys.stdout.write(f"{sandbox.url}\n")
        sys.stdout.flush()
        interrupted.wait()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
