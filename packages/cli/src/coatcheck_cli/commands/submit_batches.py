"""What `coatcheck submit` submits: everything is read and checked first, then submitted in batches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Never, cast

from attrs import frozen

from coatcheck_cli.commands.submit_params import (
    Form,
    Kind,
    form_of,
    kind_of,
    structured,
    with_member,
    written,
)
from coatcheck_cli.commands.submit_reading import documents_of, lines_of
from coatcheck_cli.commands.tasks_texts import one_line
from coatcheck_cli.failing import Exit, Failure

if TYPE_CHECKING:
    from coatcheck import App, Submission, SubmitOptions, Task

__all__ = ["BATCH", "Order", "Ticket", "batches", "tickets_of"]

BATCH = 500
"""Tasks that are saved in one step."""
_TOLD = 5
"""How many wrong lines are named."""
_IN_KEY = "{value}"
"""What in a dedup key stands for the value."""


@frozen(kw_only=True)
class Order:
    """What the command line asks for."""

    kind: str
    values: Sequence[str] = ()
    params_text: str | None = None
    field: str | None = None
    options: Sequence[str] = ()
    tracking_timeout: timedelta
    submit_options: Mapping[str, Any]
    """Fields of `SubmitOptions`, by name."""


@frozen(kw_only=True)
class Ticket:
    """One task to submit, and what it is called in messages."""

    label: str
    submission: Submission


@frozen(kw_only=True)
class _Piece:
    """One task as it was written."""

    label: str
    value: str | None
    """What stood on the line; None where the params came whole."""
    raw: Mapping[str, Any]


def tickets_of(app: App, order: Order) -> list[Ticket]:
    """Return what is to be submitted, checked as far as that needs no store.

    Raises:
        Failure: something is wrong; each wrong line is named.
    """
    kind = kind_of(app, order.kind)
    form = form_of(kind.params_type)
    base, fields = _with_options(order, form)
    pieces = list(_pieces(order, form, base))
    _check_dedup_key(fields.get("dedup_key"), pieces)
    tickets, wrong = [], []
    for piece in pieces:
        try:
            tickets.append(_ticket(app, kind, piece, fields, order.tracking_timeout))
        except ValueError as error:  # InvalidParams is one
            wrong.append(f"{piece.label}: {error}" if len(pieces) > 1 else str(error))
    if wrong:
        more = f"; and {len(wrong) - _TOLD} more" if len(wrong) > _TOLD else ""
        message = f"{'; '.join(wrong[:_TOLD])}{more}; nothing was submitted"
        raise Failure(one_line(message), Exit.USAGE)
    return tickets


def _ticket(
    app: App, kind: Kind, piece: _Piece, fields: Mapping[str, Any], tracking_timeout: timedelta
) -> Ticket:
    from coatcheck import Submission  # noqa: PLC0415 - help has no use for it
    from coatcheck.persistable import to_json  # noqa: PLC0415

    params = structured(piece.raw, kind.params_type)
    to_json(params)
    if kind.handler_key is not None:
        app.registry[kind.handler_key].validate(cast("Never", params))  # it was made as exactly this type
    given = dict(fields)
    if piece.value is not None and "dedup_key" in given:
        given["dedup_key"] = given["dedup_key"].replace(_IN_KEY, piece.value)
    if kind.handler_key is not None:
        given["handler_key"] = kind.handler_key
    submission = Submission(params=params, tracking_timeout=tracking_timeout, options=_submit_options(given))
    return Ticket(label=piece.label, submission=submission)


def _submit_options(given: Mapping[str, Any]) -> SubmitOptions:
    from coatcheck import SubmitOptions  # noqa: PLC0415 - help has no use for it

    return SubmitOptions(**given)


def _check_dedup_key(key: str | None, pieces: Sequence[_Piece]) -> None:
    if key is None:
        return
    valued = all(piece.value is not None for piece in pieces)
    if _IN_KEY in key and not valued:
        message = f"--dedup-key {key!r}: {_IN_KEY} stands for a value, and --params have none"
        raise Failure(message, Exit.USAGE)
    if len(pieces) > 1 and _IN_KEY not in key:
        message = f"--dedup-key {key!r} is for one task, not {len(pieces)}; put {_IN_KEY} into it"
        raise Failure(message, Exit.USAGE)


# ------------------------------------------------------------------ options


def _with_options(order: Order, form: Form) -> tuple[list[Mapping[str, Any]], dict[str, Any]]:
    """Return the params that were given whole, with options put into each, and the fields of `SubmitOptions`."""
    from coatcheck import SubmitOptions  # noqa: PLC0415 - help has no use for it
    from coatcheck.remedies import nearest  # noqa: PLC0415

    documents = documents_of(order.params_text)
    fields = dict(order.submit_options)
    hints = {**_hints(SubmitOptions), **form.hints}
    for text in order.options:
        path, equals, value = text.partition("=")
        name, *rest = path.split(".")
        if not equals or not all((name, *rest)):
            message = f"--option {text!r} is written name=value, such as pages=1-3"
            raise Failure(message, Exit.USAGE)
        if name not in hints:
            message = f"--option {text!r}: there is no field {name!r}; {nearest(name, hints)}"
            raise Failure(message, Exit.USAGE)
        read = written(value, hints[name] if not rest else object)
        if name in form.hints:
            documents = [with_member(document, (name, *rest), read) for document in documents or [{}]]
        elif name == "handler_key":
            raise Failure(f"--option {text!r}: name the handler as KIND instead", Exit.USAGE)
        else:
            fields = with_member(fields, (name, *rest), read)
    return documents, _structured_fields(fields)


def _hints(kind: type) -> dict[str, object]:
    return dict(form_of(kind).hints)


def _structured_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `SubmitOptions` as it wants them, such as an instant of a text."""
    from coatcheck import SubmitOptions  # noqa: PLC0415 - help has no use for it
    from coatcheck.persistable import to_json  # noqa: PLC0415

    try:
        options = structured(to_json(dict(fields), path="options", prove=False), SubmitOptions)
    except ValueError as error:
        raise Failure(str(error).replace("params", "options", 1), Exit.USAGE) from error
    return {name: getattr(options, name) for name in fields}


# ------------------------------------------------------------------ values


def _pieces(order: Order, form: Form, base: Sequence[Mapping[str, Any]]) -> Iterator[_Piece]:
    if not order.values:
        if order.field is not None:
            raise Failure("--field says what values fill, and there are none", Exit.USAGE)
        if not base:
            message = "nothing to submit: give values, - for one a line from standard input, or --params"
            raise Failure(message, Exit.USAGE)
        for index, raw in enumerate(base):
            yield _Piece(label=f"params[{index}]", value=None, raw=raw)
        return
    if len(base) > 1:
        message = "give values, or --params with several objects, not both"
        raise Failure(message, Exit.USAGE)
    field = _field(order.field, form)
    for label, value in lines_of(order.values, input_taken=order.params_text == "@-" and "-" in order.values):
        raw = {**(base[0] if base else {}), field: written(value, form.hints[field])}
        yield _Piece(label=label, value=value, raw=raw)


def _field(name: str | None, form: Form) -> str:
    from coatcheck.remedies import nearest  # noqa: PLC0415 - help has no use for it

    field = form.first if name is None else name
    if field is None:
        raise Failure("these params have no field that a value could fill; use --params", Exit.USAGE)
    if field not in form.hints:
        message = f"--field {field!r}: there is no such field; {nearest(field, form.hints)}"
        raise Failure(message, Exit.USAGE)
    return field


# ------------------------------------------------------------------ submitting


async def batches(app: App, tickets: Sequence[Ticket]) -> AsyncIterator[list[Task]]:
    """Submit, batch by batch, each all or nothing, and return what was saved as it is saved.

    Raises:
        Failure: a batch was refused; the message says what of it is wrong, and how many were submitted before.
    """
    from coatcheck import DedupConflict, InvalidParams, RoutingError  # noqa: PLC0415 - help has no use for it

    for start in range(0, len(tickets), BATCH):
        batch = tickets[start : start + BATCH]
        try:
            tasks = await app.manager.submit_many([each.submission for each in batch])
        except (InvalidParams, RoutingError, DedupConflict) as error:
            why = await _why(app, batch, error) if len(tickets) > 1 else _worded(error)
            raise Failure(f"{why}; {_standing(batch, start, len(tickets))}", Exit.USAGE) from error
        yield tasks


def _standing(batch: Sequence[Ticket], before: int, total: int) -> str:
    if before == 0:
        return "nothing was submitted"
    begin, end = batch[0].label, batch[-1].label
    return f"{before} of {total} were submitted, and from {begin} to {end}, and after it, none"


async def _why(app: App, batch: Sequence[Ticket], error: Exception) -> str:
    """Return what is wrong with a batch, by line: each is prepared alone, and nothing is saved."""
    from coatcheck import DedupConflict, InvalidParams, RoutingError  # noqa: PLC0415 - help has no use for it

    if isinstance(error, RoutingError):  # of the params type, and so of all
        return _worded(error)
    if isinstance(error, DedupConflict):
        holder = await app.manager.get(error.holder)
        key = holder.identity.dedup_key if holder else None
        found = [each.label for each in batch if each.submission.options.dedup_key == key]
        return f"{found[0]}: {error}" if found else str(error)
    for ticket in batch:
        try:
            await app.manager.prepare(ticket.submission)
        except (InvalidParams, RoutingError) as wrong:
            return f"{ticket.label}: {_worded(wrong)}"
    return _worded(error)


def _worded(error: Exception) -> str:
    from coatcheck import AmbiguousHandler  # noqa: PLC0415 - help has no use for it

    if isinstance(error, AmbiguousHandler):
        keys = ", ".join(error.candidates)
        return (
            f"{len(error.candidates)} handlers take this: {keys}; name one as KIND, or configure a selector"
        )
    return str(error)
