"""The endpoints for clients: submit a document, look at it, cancel it."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import select

from coatcheck import Status, SubmitOptions, Task
from coatcheck_handler_ocr import OcrRequest
from documents_fastapi.access import Db, Jobs, Tenant
from documents_fastapi.rows import Document

router = APIRouter(prefix="/documents")


class NewDocument(BaseModel):
    """What a client sends: FastAPI wants pydantic models at the edge."""

    model_config = ConfigDict(extra="forbid")

    title: str = Field(min_length=1, max_length=200, pattern=r"^\P{Cc}+$")
    url: str
    pages: str | None = None


@router.post("", status_code=202)
async def create(
    new: NewDocument, tenant: Tenant, jobs: Jobs, db: Db, response: Response
) -> Mapping[str, object]:
    """Save a document and the task that reads it, both or neither; nothing is sent yet."""
    task = await jobs.submit(
        OcrRequest(url=new.url, pages=new.pages),
        tracking_timeout=timedelta(hours=1),
        options=SubmitOptions(tenant_id=tenant),
        transaction=db,
    )
    db.add(Document(task_id=task.id, tenant_id=tenant, title=new.title))
    response.headers["location"] = f"/documents/{task.id}"
    return task.public()


@router.get("")
async def listing(tenant: Tenant, db: Db) -> Sequence[Mapping[str, str]]:
    """Return the tenant's documents."""
    rows = await db.scalars(select(Document).where(Document.tenant_id == tenant).order_by(Document.task_id))
    return [{"id": row.task_id, "title": row.title} for row in rows]


async def find(task_id: str, tenant: Tenant, jobs: Jobs) -> Task:
    """Return a task of the tenant's; to everybody else there is none."""
    task = await jobs.get(task_id, tenant_id=tenant)
    if task is None:
        raise HTTPException(404, "there is no such document")
    return task


@router.get("/{task_id}")
async def show(task: Annotated[Task, Depends(find)]) -> Mapping[str, object]:
    """Return how a document stands, with the result once it is there."""
    return task.public()


@router.delete("/{task_id}")
async def cancel(
    task: Annotated[Task, Depends(find)], tenant: Tenant, jobs: Jobs, response: Response
) -> Mapping[str, object]:
    """Cancel the reading of a document; 409 if it had ended otherwise before."""
    await jobs.cancel(task.id, tenant_id=tenant)
    after = await find(task.id, tenant, jobs)
    if after.status.terminal and after.status is not Status.CANCELED:
        response.status_code = 409
    return after.public()
