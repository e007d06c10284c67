"""What can go wrong at a provider, as data: one class for each kind of fault.

Put one into effect with `sandbox.faults.add(Drop(operation="submit", when="after"))`, or from another process
with `POST /_sandbox/faults` and `{"kind": "drop", "operation": "submit", "when": "after"}`: the kind is the
class's name in snake case, the other keys are its fields.
"""

import math
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, ClassVar

from attrs import Attribute, asdict, field, fields_dict, frozen
from attrs.validators import instance_of, optional

from coatcheck_sandbox.errors import FaultInvalid


class Operation(StrEnum):
    """What a request wants."""

    SUBMIT = "submit"
    """Create a job."""
    QUERY = "query"
    """Ask for a job."""
    RESULT = "result"
    """Fetch the result of a job, where that is another request than the query."""
    CANCEL = "cancel"
    """Cancel a job."""
    DOWNLOAD = "download"
    """Fetch one of the sandbox's own pages."""
    OTHER = "other"
    """What is about no job, such as a request for a token."""


class When(StrEnum):
    """On which side of the work a fault strikes. The request has been read to its end in both cases."""

    BEFORE = "before"
    """Nothing was done: no job was created."""
    AFTER = "after"
    """The job was created; only the answer is affected."""


def _operation(value: str | None) -> Operation | None:
    return None if value is None else Operation(value)


def _number(
    low: float, high: float = math.inf, *, whole: bool = False, optional: bool = False
) -> Callable[[object, "Attribute[Any]", object], None]:
    """A check that a field is a number from `low` to `high`; `optional` lets None pass."""

    def check(_: object, attribute: "Attribute[Any]", value: object) -> None:
        if optional and value is None:
            return
        wrong_type = isinstance(value, bool) or (whole and not isinstance(value, int))
        if wrong_type or not isinstance(value, int | float) or not low <= value <= high:
            kind = "a whole number" if whole else "a number"
            limit = f"at least {low}" if high == math.inf else f"from {low} to {high}"
            raise FaultInvalid(f"{attribute.name!r} is {value!r}; give {kind} {limit}")

    return check


_seconds = _number(0)
_text = instance_of(str)
_optional_text = optional(_text)


@frozen(kw_only=True)
class Fault:
    """What all faults have in common: which requests they strike, and how often."""

    needs: ClassVar[Operation | None] = None
    """The only operation that this kind makes sense for; None if it suits all."""

    operation: Operation | None = field(default=None, converter=_operation)
    """Which requests to strike; None strikes all that the kind suits, downloads too."""
    times: int | None = field(default=1, validator=_number(1, whole=True, optional=True))
    """How many requests to strike; None never stops."""
    probability: float = field(default=1.0, validator=_number(0, 1))
    """The chance of each request to be struck, drawn from the sandbox's seeded generator."""
    document: str | None = field(default=None, validator=_optional_text)
    """Only requests about the document with this file name; None strikes all."""

    def __attrs_post_init__(self) -> None:
        if self.operation is not None and self.needs not in {None, self.operation}:
            raise FaultInvalid(
                f"{self.kind!r} strikes {str(self.needs)!r} requests only; leave `operation` out"
            )

    @property
    def kind(self) -> str:
        """The kind's name on the wire and in the log: `lost_job` for `LostJob`."""
        return _kind_of(type(self))

    def suits(self, operation: Operation, document: str | None, *, finished: bool) -> bool:
        """Whether this fault may strike a request; `finished` says that the job in question has ended."""
        del finished
        return (
            self.needs in {None, operation}
            and self.operation in {None, operation}
            and self.document in {None, document}
        )


@frozen(kw_only=True)
class Answer(Fault):
    """Answer with an error: 429, 500, 503, or what you like."""

    status: int = field(default=503, validator=_number(200, 599, whole=True))
    code: str = field(default="sandbox_fault", validator=_text)
    """The code in the provider's error envelope; `insufficient_quota` makes a 429 one about money."""
    message: str = field(default="injected by the sandbox", validator=_text)
    retry_after: str | None = field(default=None, validator=_optional_text)
    """The value of Retry-After, as it stands: seconds, an HTTP date, or garbage; None sends none."""
    body: str | None = field(default=None, validator=_optional_text)
    """A body to send instead of the error envelope, such as a gateway's HTML."""
    content_type: str = field(default="text/html", validator=_text)
    """The media type of `body`."""
    when: When = field(default=When.BEFORE, converter=When)


@frozen(kw_only=True)
class Drop(Fault):
    """Close the connection without an answer."""

    when: When = field(default=When.BEFORE, converter=When)
    reset: bool = field(default=False, validator=instance_of(bool))
    """Whether the client sees a reset (RST) instead of an orderly end (FIN)."""


@frozen(kw_only=True)
class Stall(Fault):
    """Leave the client waiting, then go on as if nothing had happened."""

    seconds: float | None = field(default=None, validator=_number(0, optional=True))
    """How long; None waits for `SandboxServer.release_stalled()` or `POST /_sandbox/release`."""
    when: When = field(default=When.BEFORE, converter=When)


@frozen(kw_only=True)
class SlowBody(Fault):
    """Send the true answer in small pieces."""

    seconds: float = field(default=5.0, validator=_seconds)
    """How long the whole body takes."""


@frozen(kw_only=True)
class MalformedJson(Fault):
    """Send half of the true answer, as if it were all of it."""


@frozen(kw_only=True)
class MalformedHttp(Fault):
    """Send bytes that are no HTTP response."""


@frozen(kw_only=True)
class TruncatedBody(Fault):
    """Announce the whole true answer, send half of it, and close the connection."""


@frozen(kw_only=True)
class HugeBody(Fault):
    """Send the true answer behind so many blanks that it is of this size; it is still valid JSON."""

    size_bytes: int = field(default=64 * 1024 * 1024, validator=_number(1, whole=True))


@frozen(kw_only=True)
class Redirect(Fault):
    """Send the client elsewhere."""

    location: str = field(validator=_text)
    """The absolute URL to name; the log of a second sandbox there shows whether credentials came along."""
    status: int = field(default=307, validator=_number(300, 399, whole=True))


@frozen(kw_only=True)
class StatusWord(Fault):
    """Report the job's status with a word that the provider's documentation doesn't list."""

    needs: ClassVar[Operation | None] = Operation.QUERY

    word: str = field(default="aborted", validator=_text)


@frozen(kw_only=True)
class NoResult(Fault):
    """Report a finished job as a success without its result; strikes queries of finished jobs only."""

    needs: ClassVar[Operation | None] = Operation.QUERY

    def suits(self, operation: Operation, document: str | None, *, finished: bool) -> bool:
        """As for all faults, and the job must have ended."""
        return finished and Fault.suits(self, operation, document, finished=finished)


@frozen(kw_only=True)
class HiddenJob(Fault):
    """Create the job, but answer queries with 404 at first."""

    needs: ClassVar[Operation | None] = Operation.SUBMIT

    seconds: float = field(default=5.0, validator=_seconds)
    """How long after its creation the job isn't found, by the sandbox's clock."""


@frozen(kw_only=True)
class FailingJob(Fault):
    """Create a job that fails."""

    needs: ClassVar[Operation | None] = Operation.SUBMIT

    code: str = field(default="document_unreadable", validator=_text)
    message: str = field(default="the document can't be opened", validator=_text)


def _kind_of(class_: type[Fault]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", class_.__name__).lower()


KINDS: dict[str, type[Fault]] = {_kind_of(class_): class_ for class_ in Fault.__subclasses__()}
"""Each kind of fault by its name on the wire."""


def fault_from_json(data: object) -> Fault:
    """The fault that a JSON object describes: `kind`, and any of the fields of that kind.

    Raises:
        FaultInvalid: no such kind or field, or a value that doesn't fit; the message says which.
    """
    if not isinstance(data, Mapping):
        raise FaultInvalid(f'a fault is an object such as {{"kind": "drop"}}, not {data!r}')
    values = dict(data)
    kind = values.pop("kind", None)
    class_ = KINDS.get(kind) if isinstance(kind, str) else None
    if class_ is None:
        raise FaultInvalid(f"unknown kind {kind!r}; choose one of {', '.join(sorted(KINDS))}")
    unknown = set(values) - set(fields_dict(class_))
    if unknown:
        raise FaultInvalid(f"{kind!r} has no field {', '.join(map(repr, sorted(unknown)))}")
    try:
        return class_(**values)
    except (TypeError, ValueError) as error:
        # attrs puts the message first and the attribute, the validator and the value after it.
        raise FaultInvalid(f"{kind!r}: {error.args[0]}") from error


def fault_to_json(fault: Fault) -> dict[str, object]:
    """The fault as a JSON object that `fault_from_json` takes."""
    return {"kind": fault.kind, **asdict(fault)}
