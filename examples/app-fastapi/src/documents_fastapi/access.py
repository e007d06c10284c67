"""What endpoints depend on: whose request it is, the manager, and a session."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Header, HTTPException, Request
from sqlalchemy.ext.asyncio import AsyncSession

from coatcheck import Manager


def caller(x_tenant: Annotated[str | None, Header()] = None) -> str:
    """Return whose request this is. The header stands for your authentication."""
    if x_tenant is None or not x_tenant.strip():
        raise HTTPException(401, "say who you are in the header X-Tenant")
    return x_tenant


def manager(request: Request) -> Manager:
    """Return the manager of the app that the lifespan has opened."""
    found: Manager = request.app.state.jobs.manager
    return found


async def session(request: Request) -> AsyncIterator[AsyncSession]:
    """Yield a session that commits when the endpoint has returned."""
    async with request.app.state.sessions.begin() as db:
        yield db


Tenant = Annotated[str, Depends(caller)]
Jobs = Annotated[Manager, Depends(manager)]
Db = Annotated[AsyncSession, Depends(session, scope="function")]
"""Committed before the response is sent: whoever has the ticket finds the task."""
