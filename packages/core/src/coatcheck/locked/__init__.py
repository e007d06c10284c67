"""The easy road to a store: the whole contract in plain Python, over one exclusive section.

Subclass `LockedStore`, give it a clock and a section, which is a transaction over ordered records, and the
result keeps every promise of `coatcheck.store`: correct on the first day, optimised later. A store that
keeps bytes under bytes, in order, subclasses `ByteRecords` for its transactions::

    class FileStore(LockedStore):
        blocking = True  # sections do I/O

        def _now(self): ...  # the time, aware UTC
        def _section(self): ...  # lock, yield ByteRecords, write or undo, unlock

The rooms, bottom to top: `ordered` (records), `snapshots` (tasks in and out), `gatekeeper` (gates), `lanes`
(order, and parking behind gates), `ledger` (tasks and their index entries), `steps`, `claims` and `reading`
(what the methods do), `bell` (waiting), `store` (the methods).
"""

from coatcheck.locked.ordered import ByteRecords, Key, Record, Records, task_key
from coatcheck.locked.store import LockedStore

__all__ = ["ByteRecords", "Key", "LockedStore", "Record", "Records", "task_key"]
