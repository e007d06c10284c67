"""The endpoints: submit a document, look at it, cancel it, and take the provider's callbacks."""

from collections.abc import Mapping
from datetime import timedelta
from typing import TypeAlias, TypeGuard

from flask import Blueprint, Response, abort, current_app, request
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from coatcheck import (
    CallbackRejected,
    CallbackRequest,
    InvalidParams,
    NoHandler,
    Status,
    SubmitOptions,
    Task,
    Unsupported,
    sync,
)
from coatcheck_handler_ocr import OcrRequest
from documents_flask.rows import MAX_TITLE_CHARACTERS, Document

Answer: TypeAlias = tuple[Mapping[str, object], int] | tuple[Mapping[str, object], int, Mapping[str, str]]

blueprint = Blueprint("documents", __name__)


def jobs() -> sync.Manager:
    """Return the manager of the application that serves this request."""
    app: sync.App = current_app.extensions["coatcheck"]
    return app.manager


def database() -> Engine:
    """Return the database of the application that serves this request."""
    engine: Engine = current_app.extensions["engine"]
    return engine


def caller() -> str:
    """Return whose request this is. The header stands for your authentication."""
    tenant = request.headers.get("X-Tenant", "").strip()
    if not tenant:
        abort(401, "say who you are in the header X-Tenant")
    return tenant


def is_title(value: object) -> TypeGuard[str]:
    """Return whether it is a line of text; databases refuse zeros and halves of characters, so clients hear of it."""
    return isinstance(value, str) and value.isprintable() and 0 < len(value.strip()) <= MAX_TITLE_CHARACTERS


def new_document() -> tuple[str, OcrRequest]:
    """Return the title of what a client sends, and what is to be read.

    Raises:
        InvalidParams: it is no such thing.
    """
    sent = request.get_json()
    if not isinstance(sent, dict) or not sent.keys() <= {"title", "url", "pages"}:
        raise InvalidParams("send a JSON object with title, url and, if you like, pages")
    title, url, pages = sent.get("title"), sent.get("url"), sent.get("pages")
    if not is_title(title):
        message = f"title must be a line of 1 to {MAX_TITLE_CHARACTERS} characters, not {title!r}"
        raise InvalidParams(message)
    if not isinstance(url, str) or not isinstance(pages, str | None):
        message = f"url must be a text, and pages too if there are any, not {url!r} and {pages!r}"
        raise InvalidParams(message)
    return title, OcrRequest(url=url, pages=pages)


@blueprint.post("/documents")
def create() -> Answer:
    """Save a document and the task that reads it, both or neither; nothing is sent yet."""
    tenant = caller()
    title, wanted = new_document()
    with Session(database()) as db, db.begin():
        task = jobs().submit(
            wanted,
            tracking_timeout=timedelta(hours=1),
            options=SubmitOptions(tenant_id=tenant),
            transaction=db,
        )
        db.add(Document(task_id=task.id, tenant_id=tenant, title=title))
    return task.public(), 202, {"location": f"/documents/{task.id}"}


@blueprint.get("/documents")
def listing() -> list[dict[str, str]]:
    """Return the tenant's documents."""
    theirs = select(Document).where(Document.tenant_id == caller()).order_by(Document.task_id)
    with Session(database()) as db:
        return [{"id": row.task_id, "title": row.title} for row in db.scalars(theirs)]


def find(task_id: str) -> Task:
    """Return a task of the caller's; to everybody else there is none."""
    task = jobs().get(task_id, tenant_id=caller())
    if task is None:
        abort(404, "there is no such document")
    return task


@blueprint.get("/documents/<task_id>")
def show(task_id: str) -> Answer:
    """Return how a document stands, with the result once it is there."""
    return find(task_id).public(), 200


@blueprint.delete("/documents/<task_id>")
def cancel(task_id: str) -> Answer:
    """Cancel the reading of a document; 409 if it had ended otherwise before."""
    jobs().cancel(find(task_id).id, tenant_id=caller())
    after = find(task_id)
    too_late = after.status.terminal and after.status is not Status.CANCELED
    return after.public(), 409 if too_late else 200


@blueprint.post("/callbacks/<handler_key>")
def callback(handler_key: str) -> Response:
    """Hand a provider's callback to its handler as it came, and reply as the handler says.

    What a callback says is asked about, never believed.
    """
    received = CallbackRequest(
        method=request.method,
        path=request.path,
        headers={name.lower(): value for name, value in request.headers.items()},
        query=request.args.to_dict(),
        body=request.get_data(),
    )
    try:
        reply = jobs().receive_callback(handler_key, received)
    except CallbackRejected as error:
        current_app.logger.warning("a callback for %s was refused: %s", handler_key, error)
        abort(403, "this callback is not authentic")
    except (NoHandler, Unsupported):
        abort(404, "nothing takes callbacks here")
    return Response(reply.reply_body, reply.reply_status, dict(reply.reply_headers))
