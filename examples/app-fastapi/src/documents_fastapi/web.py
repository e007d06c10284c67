"""The web application: `uvicorn --factory documents_fastapi.web:create_web`."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.ext.asyncio import async_sessionmaker

from coatcheck import InvalidParams, StoreUnavailable
from documents_fastapi import callbacks, documents
from documents_fastapi.jobs import Settings, make_app
from documents_fastapi.rows import create_tables, make_engine


def create_web(settings: Settings | None = None) -> FastAPI:
    """Return the web application; its lifespan opens what it needs, and a worker if the settings want one."""
    chosen = settings or Settings.from_env()

    @asynccontextmanager
    async def lifespan(web: FastAPI) -> AsyncIterator[None]:
        jobs, engine = make_app(chosen), make_engine(chosen.database_url)
        web.state.jobs, web.state.sessions = jobs, async_sessionmaker(engine, expire_on_commit=False)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(engine.dispose)
            await stack.enter_async_context(jobs)
            await create_tables(engine)
            if chosen.embed_worker:
                await stack.enter_async_context(jobs.worker())
            yield

    web = FastAPI(title="Documents", lifespan=lifespan)
    web.include_router(documents.router)
    web.include_router(callbacks.router)
    web.exception_handler(RequestValidationError)(explain)
    web.exception_handler(InvalidParams)(refuse)
    web.exception_handler(StoreUnavailable)(postpone)
    return web


async def explain(_: Request, error: RequestValidationError) -> Response:
    """Tell a client what is wrong where; what it sent is not repeated, as no answer can carry halves of characters."""
    wrong = [{"loc": each["loc"], "msg": each["msg"]} for each in error.errors()]
    return JSONResponse({"detail": wrong}, 422)


async def refuse(_: Request, error: InvalidParams) -> Response:
    """Tell a client what is wrong with its document; these messages are meant for it, and hold no secrets."""
    return JSONResponse({"detail": str(error)}, 422)


async def postpone(_: Request, __: StoreUnavailable) -> Response:
    """Tell a client to come again: nothing was saved."""
    return JSONResponse({"detail": "try again in a moment"}, 503, {"retry-after": "5"})
