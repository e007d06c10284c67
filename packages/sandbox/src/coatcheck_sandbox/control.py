"""The sandbox's own routes, under `/_sandbox`: for tests and tools in other processes."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

from attrs import asdict
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from coatcheck_sandbox.backend import Backend
from coatcheck_sandbox.errors import FaultInvalid
from coatcheck_sandbox.faults import fault_from_json, fault_to_json
from coatcheck_sandbox.log import request_to_json

PREFIX = "/_sandbox"


class Control:
    """What can be seen and changed from outside."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def routes(self) -> list[Route]:
        """The routes to put into an application."""
        routes: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
            ("GET", "/faults", self.list_faults),
            ("POST", "/faults", self.add_faults),
            ("DELETE", "/faults", self.clear_faults),
            ("GET", "/log", self.list_requests),
            ("GET", "/stats", self.list_statistics),
            ("POST", "/release", self.release_stalled),
            ("PUT", "/delay", self.set_delay),
            ("POST", "/reset", self.reset),
        ]
        return [Route(PREFIX + path, endpoint, methods=[method]) for method, path, endpoint in routes]

    async def list_faults(self, request: Request) -> Response:
        """`GET /faults`: the faults in effect."""
        del request
        return JSONResponse([fault_to_json(fault) for fault in self._backend.faults.pending()])

    async def add_faults(self, request: Request) -> Response:
        """`POST /faults`: put a fault, or an array of faults, into effect; 400 says what is wrong."""
        try:
            data = await request.json()
            faults = [fault_from_json(entry) for entry in (data if isinstance(data, list) else [data])]
        except (ValueError, FaultInvalid) as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        self._backend.faults.add(*faults)
        return JSONResponse([fault_to_json(fault) for fault in faults], status_code=201)

    async def clear_faults(self, request: Request) -> Response:
        """`DELETE /faults`: lift all faults."""
        del request
        self._backend.faults.clear()
        return Response(status_code=204)

    async def list_requests(self, request: Request) -> Response:
        """`GET /log`: all requests to the providers, oldest first."""
        del request
        return JSONResponse([request_to_json(entry) for entry in self._backend.log.requests()])

    async def list_statistics(self, request: Request) -> Response:
        """`GET /stats`: for each document its name, SHA-256, creating requests and jobs."""
        del request
        statistics = self._backend.log.statistics(self._backend.jobs.counts())
        return JSONResponse([asdict(entry) for entry in statistics])

    async def release_stalled(self, request: Request) -> Response:
        """`POST /release`: let all stalled requests go on."""
        del request
        return JSONResponse({"released": self._backend.stalls.release()})

    async def set_delay(self, request: Request) -> Response:
        """`PUT /delay` with `{"seconds": 2}`: how long new jobs take."""
        try:
            self._backend.jobs.delay = timedelta(seconds=(await request.json())["seconds"])
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            return JSONResponse({"error": f'send {{"seconds": 2}}: {error!r}'}, status_code=400)
        return Response(status_code=204)

    async def reset(self, request: Request) -> Response:
        """`POST /reset`: forget jobs, requests and faults, and release what is stalled."""
        del request
        self._backend.faults.clear()
        self._backend.jobs.clear()
        self._backend.log.clear()
        self._backend.stalls.release()
        return Response(status_code=204)
