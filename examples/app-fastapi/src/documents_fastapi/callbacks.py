"""The endpoint for providers, which nudge: what they say is asked about, never believed."""

import logging

from fastapi import APIRouter, HTTPException, Request, Response

from coatcheck import CallbackRejected, CallbackRequest, NoHandler, Unsupported
from documents_fastapi.access import Jobs

MAX_BYTES = 1 << 20
"""Anybody can post here, so what is read before it is checked is bounded."""

log = logging.getLogger(__name__)
router = APIRouter()


@router.post("/callbacks/{handler_key}")
async def callback(handler_key: str, request: Request, jobs: Jobs) -> Response:
    """Hand a provider's callback to its handler as it came, and reply as the handler says."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_BYTES:
            raise HTTPException(413, f"a callback has at most {MAX_BYTES} bytes")
    received = CallbackRequest(
        method=request.method,
        path=request.url.path,
        headers=dict(request.headers),
        query=dict(request.query_params),
        body=body,
    )
    try:
        reply = await jobs.receive_callback(handler_key, received)
    except CallbackRejected as error:
        log.warning("a callback for %s was refused: %s", handler_key, error)
        raise HTTPException(403, "this callback is not authentic") from error
    except (NoHandler, Unsupported) as error:
        raise HTTPException(404, "nothing takes callbacks here") from error
    return Response(reply.reply_body, reply.reply_status, dict(reply.reply_headers))
