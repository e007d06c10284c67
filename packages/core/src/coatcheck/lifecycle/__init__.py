"""The lifecycle: the table of arrows, and one pure function for each thing that can happen.

Stores call these functions inside their atomic steps, with the row as it is and their own clock, and
write what comes back. No other code changes a status. `ARROWS` is the table; a move that is not in it
raises `InvalidTransition`, and the docs page is generated from it.
"""

from __future__ import annotations

from coatcheck.lifecycle.arrows import ARROWS, Arrow
from coatcheck.lifecycle.doubt import attested, resolved
from coatcheck.lifecycle.moving import HISTORY_LIMIT
from coatcheck.lifecycle.settlement import Settlement, returned_grant, settled
from coatcheck.lifecycle.steps import (
    cancellation_requested,
    claimed_for_query,
    claimed_for_submission,
    claimed_stale,
    created,
    lease_ended,
    nudged,
    renewed,
    started,
)

__all__ = [
    "ARROWS",
    "HISTORY_LIMIT",
    "Arrow",
    "Settlement",
    "attested",
    "cancellation_requested",
    "claimed_for_query",
    "claimed_for_submission",
    "claimed_stale",
    "created",
    "lease_ended",
    "nudged",
    "renewed",
    "resolved",
    "returned_grant",
    "settled",
    "started",
]
