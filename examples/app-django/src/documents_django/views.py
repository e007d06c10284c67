"""The endpoints: submit a document, look at it, cancel it, and take the provider's callbacks."""

import json
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import wraps
from typing import Concatenate, ParamSpec, TypeGuard

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods, require_POST

from coatcheck import (
    CallbackRejected,
    CallbackRequest,
    InvalidParams,
    NoHandler,
    Status,
    StoreUnavailable,
    Submission,
    SubmitOptions,
    Task,
    TaskNotFound,
    Unsupported,
)
from coatcheck_handler_ocr import OcrRequest
from documents_django import jobs
from documents_django.models import MAX_TITLE_CHARACTERS, Document

P = ParamSpec("P")

log = logging.getLogger(__name__)


def for_tenants(
    view: Callable[Concatenate[HttpRequest, str, P], HttpResponse],
) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
    """Return a view that knows whose request it is, and tells clients what was wrong.

    The header stands for your authentication. No cookie does, so there is nothing to forge across sites.
    """

    @csrf_exempt
    @wraps(view)
    def answer(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        tenant = request.headers.get("X-Tenant", "").strip()
        if not tenant:
            return told(401, "say who you are in the header X-Tenant")
        try:
            return view(request, tenant, *args, **kwargs)
        except InvalidParams as error:  # these messages are meant for clients, and hold no secrets
            return told(400, str(error))
        except TaskNotFound:
            return told(404, "there is no such document")
        except StoreUnavailable:
            return told(503, "try again in a moment", {"retry-after": "5"})

    return answer


def told(status: int, why: str, headers: Mapping[str, str] | None = None) -> JsonResponse:
    """Return an answer that says what was wrong."""
    return JsonResponse({"error": why}, status=status, headers=headers)


def is_title(value: object) -> TypeGuard[str]:
    """Return whether it is a line of text; databases refuse zeros and halves of characters, so clients hear of it."""
    return isinstance(value, str) and value.isprintable() and 0 < len(value.strip()) <= MAX_TITLE_CHARACTERS


def new_document(body: bytes) -> tuple[str, OcrRequest]:
    """Return the title of what a client sends, and what is to be read.

    Raises:
        InvalidParams: it is no such thing.
    """
    try:
        sent = json.loads(body)
    except ValueError as error:
        message = f"the body is no JSON: {error}"
        raise InvalidParams(message) from error
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


@for_tenants
@require_http_methods(["GET", "POST"])
def documents(request: HttpRequest, tenant: str) -> HttpResponse:
    """Save a document and the task that reads it, both or neither; or list the tenant's documents."""
    if request.method == "GET":
        rows = Document.objects.filter(tenant_id=tenant).order_by("task_id")
        return JsonResponse([{"id": row.task_id, "title": row.title} for row in rows], safe=False)
    title, wanted = new_document(request.body)
    options = SubmitOptions(tenant_id=tenant)
    submission = Submission(params=wanted, tracking_timeout=timedelta(hours=1), options=options)
    draft = jobs.app.manager.prepare(submission)  # before the transaction: the first call opens the store
    with transaction.atomic():
        jobs.add_in_transaction(draft)
        Document.objects.create(task_id=draft.id, tenant_id=tenant, title=title)
    task = find(draft.id, tenant)
    return JsonResponse(task.public(), status=202, headers={"location": f"/documents/{task.id}"})


def find(task_id: str, tenant: str) -> Task:
    """Return a task of the tenant's; to everybody else there is none."""
    task = jobs.app.manager.get(task_id, tenant_id=tenant)
    if task is None:
        raise TaskNotFound(task_id)
    return task


@for_tenants
@require_http_methods(["GET", "DELETE"])
def document(request: HttpRequest, tenant: str, task_id: str) -> HttpResponse:
    """Tell how a document stands, or cancel the reading of it: 409 if it had ended otherwise before."""
    task = find(task_id, tenant)
    if request.method == "GET":
        return JsonResponse(task.public())
    jobs.app.manager.cancel(task_id, tenant_id=tenant)
    after = find(task_id, tenant)
    too_late = after.status.terminal and after.status is not Status.CANCELED
    return JsonResponse(after.public(), status=409 if too_late else 200)


@csrf_exempt
@require_POST
def callback(request: HttpRequest, handler_key: str) -> HttpResponse:
    """Hand a provider's callback to its handler as it came, and reply as the handler says.

    What a callback says is asked about, never believed.
    """
    received = CallbackRequest(
        method="POST",
        path=request.path,
        headers={name.lower(): value for name, value in request.headers.items()},
        query=request.GET.dict(),
        body=request.body,
    )
    try:
        reply = jobs.app.manager.receive_callback(handler_key, received)
    except CallbackRejected as error:
        log.warning("a callback for %s was refused: %s", handler_key, error)
        return told(403, "this callback is not authentic")
    except (NoHandler, Unsupported):
        return told(404, "nothing takes callbacks here")
    return HttpResponse(reply.reply_body, status=reply.reply_status, headers=reply.reply_headers)
