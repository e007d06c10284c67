"""`coatcheck tasks`: what there is, how each stands, and the desk where people decide."""

from __future__ import annotations

import click

from coatcheck_cli.groups import LazyGroup

__all__ = ["tasks"]

_HERE = "coatcheck_cli.commands"
_EPILOG = """\b
Examples:
  coatcheck tasks list --status RUNNING --handler ocr:azure
  coatcheck tasks show 0197c5e2-6a52-7cc3-9d51-3a2f5e0c7d11
  coatcheck tasks wait 0197c5e2-6a52-7cc3-9d51-3a2f5e0c7d11 --timeout 10m
  coatcheck tasks unknown
"""


@click.group(
    name="tasks",
    cls=LazyGroup,
    epilog=_EPILOG,
    lazy={
        "list": (f"{_HERE}.tasks_list:list_tasks", "List tasks, the oldest first."),
        "show": (f"{_HERE}.tasks_show:show", "Everything that is known of one task, with its history."),
        "wait": (f"{_HERE}.tasks_wait:wait", "Wait until tasks have ended."),
        "cancel": (f"{_HERE}.tasks_cancel:cancel", "Cancel tasks."),
        "unknown": (f"{_HERE}.tasks_unknown:unknown", "The desk: tasks in doubt, and the choices for each."),
        "adopt": (f"{_HERE}.tasks_resolve:adopt", "The provider has the job: track it."),
        "resubmit": (f"{_HERE}.tasks_resolve:resubmit", "The provider does not have it: send it again."),
        "abandon": (f"{_HERE}.tasks_resolve:abandon", "Nobody needs it any more: give it up."),
        "extend": (f"{_HERE}.tasks_resolve:extend", "It timed out, and is still wanted: more time."),
        "purge": (f"{_HERE}.tasks_purge:purge", "Delete tasks that ended long ago."),
    },
)
def tasks() -> None:
    """List, show, cancel, resolve and purge tasks.

    Exit codes: 0 it was done, 1 it could not be done, 2 the command line or the configuration is wrong, 3 there is
    no such task, 4 a task ended without a result, 5 the time to wait ran out, 6 the store cannot be reached.
    """
