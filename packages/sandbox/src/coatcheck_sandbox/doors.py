"""The routes by which requests come in: those of each provider, and the pages."""

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta

from attrs import evolve
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from coatcheck_sandbox import pages
from coatcheck_sandbox.backend import Backend, Payload
from coatcheck_sandbox.errors import RequestRefused, UnknownPage
from coatcheck_sandbox.faults import Answer, FailingJob, Fault, HiddenJob, NoResult, Operation, StatusWord
from coatcheck_sandbox.jobs import Failure, Film, Job, State, Upload
from coatcheck_sandbox.protocol import Reply, WireProtocol


class ProviderDoor:
    """One provider's routes."""

    def __init__(self, protocol: WireProtocol, backend: Backend) -> None:
        self._protocol = protocol
        self._backend = backend

    def routes(self) -> list[Route]:
        """The routes to put into an application."""
        found = []
        for route, operation in self._protocol.routes.items():
            method, _, path = route.partition(" ")
            found.append(Route(self._protocol.prefix + path, self._endpoint(operation), methods=[method]))
        return found

    def _endpoint(self, routed: Operation) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            operation = self._protocol.operation_of(request, routed)
            self._backend.log.note(self._backend.entry_of(request), operation=operation)
            try:
                if operation is Operation.SUBMIT:
                    return await self._submit(request)
                if operation is Operation.OTHER:
                    return await self._other(request)
                return await self._ask(request, operation)
            except RequestRefused as refusal:
                return self._refuse(refusal).response()

        return endpoint

    async def _submit(self, request: Request) -> Response:
        """Create a job."""
        log, entry = self._backend.log, self._backend.entry_of(request)
        upload = await self._protocol.read_upload(request)
        log.note(entry, document=(upload.name, upload.digest))
        self._protocol.authorize(request)
        fault = self._backend.pick_fault(request, Operation.SUBMIT, upload.name)

        def create() -> Payload:
            try:
                job = self._create(upload, fault)
            except RequestRefused as refusal:
                return self._refuse(refusal)
            log.note(entry, job_id=job.job_id)
            snapshot = self._backend.jobs.look_at(job)
            # A fast engine may be done by now; providers answer a submission with the queue all the same.
            queued = evolve(snapshot, state=State.WAITING, result=None, failure=None)
            return _payload(self._protocol.render_created(queued, request))

        return await self._backend.serve(fault, create, self._error)

    async def _ask(self, request: Request, operation: Operation) -> Response:
        """Ask for a job or its result, or cancel it."""
        log, entry = self._backend.log, self._backend.entry_of(request)
        job_id = await self._protocol.read_job_id(request)
        log.note(entry, job_id=job_id)
        job = self._backend.jobs.get(job_id)
        if job is not None:
            log.note(entry, document=(job.name, job.digest))
        self._protocol.authorize(request)
        ended = {State.SUCCEEDED, State.FAILED}
        finished = job is not None and self._backend.jobs.look_at(job).state in ended
        name = None if job is None else job.name
        fault = self._backend.pick_fault(request, operation, name, finished=finished)
        return await self._backend.serve(
            fault, lambda: self._report(job, fault, request, operation), self._error
        )

    async def _other(self, request: Request) -> Response:
        """Answer what is about no job."""
        self._protocol.authorize(request)
        reply = await self._protocol.answer(request)
        fault = self._backend.pick_fault(request, Operation.OTHER, None)
        return await self._backend.serve(fault, lambda: _payload(reply), self._error)

    def _create(self, upload: Upload, fault: Fault | None) -> Job:
        hidden, failure = timedelta(0), None
        if isinstance(fault, HiddenJob):
            hidden = timedelta(seconds=fault.seconds)
        if isinstance(fault, FailingJob):
            failure = Failure(code=fault.code, message=fault.message)
        return self._backend.jobs.create(upload, hidden=hidden, planned_failure=failure)

    def _report(
        self, job: Job | None, fault: Fault | None, request: Request, operation: Operation
    ) -> Payload:
        if job is None or self._backend.jobs.is_hidden(job):
            return self._refuse(RequestRefused(404, "task_not_found", "no such task"))
        if operation is Operation.CANCEL and not self._backend.jobs.cancel(job):
            return self._refuse(RequestRefused(409, "task_ended", "the task has ended"))
        snapshot = self._backend.jobs.look_at(job)
        if isinstance(fault, StatusWord):
            snapshot = evolve(snapshot, status_word=fault.word)
        if isinstance(fault, NoResult):
            snapshot = evolve(snapshot, state=State.SUCCEEDED, result=None, failure=None)
        render = {
            Operation.RESULT: self._protocol.render_result,
            Operation.CANCEL: self._protocol.render_canceled,
        }.get(operation, self._protocol.render_job)
        try:
            return _payload(render(snapshot, request))
        except RequestRefused as refusal:
            return self._refuse(refusal)

    def _refuse(self, refusal: RequestRefused) -> Payload:
        return _payload(self._protocol.render_refusal(refusal))

    def _error(self, fault: Answer) -> Payload:
        return self._refuse(RequestRefused(fault.status, fault.code, fault.message))


class PagesDoor:
    """The pages that are shipped, for clients that take documents from URLs."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def routes(self) -> list[Route]:
        """The routes to put into an application."""
        return [
            Route("/pages/", self.list_pages, methods=["GET"]),
            Route("/pages/{name}", self.download, methods=["GET"]),
        ]

    async def list_pages(self, request: Request) -> Response:
        """A JSON array of all pages: name, URL, media type, and the text on it."""
        return JSONResponse(
            [
                {
                    "name": name,
                    "url": str(request.url_for("download", name=name)),
                    "media_type": pages.media_type(name),
                    "truth": pages.truth(name),
                }
                for name in pages.names()
            ]
        )

    async def download(self, request: Request) -> Response:
        """The image of a page."""
        name = str(request.path_params["name"])
        self._backend.log.note(self._backend.entry_of(request), operation=Operation.DOWNLOAD)
        fault = self._backend.pick_fault(request, Operation.DOWNLOAD, name)
        return await self._backend.serve(fault, lambda: self._document(name), _plain_error)

    def _document(self, name: str) -> Payload:
        try:
            content, media_type = self._backend.documents.read(name)
        except UnknownPage as error:
            return Payload(status=404, content=str(error).encode(), media_type="text/plain")
        return Payload(content=content, media_type=media_type)


class FilmsDoor:
    """The videos that were made, for whoever knows a job's id, as behind presigned URLs."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def routes(self) -> list[Route]:
        """The routes to put into an application."""
        return [Route("/films/{job_id}.mp4", self.download, methods=["GET"])]

    async def download(self, request: Request) -> Response:
        """The video, or what is asked of it with `Range`."""
        log, entry = self._backend.log, self._backend.entry_of(request)
        log.note(entry, operation=Operation.DOWNLOAD)
        job = self._backend.jobs.get(str(request.path_params["job_id"]))
        film = None if job is None else self._backend.jobs.look_at(job).film
        if job is None or film is None:
            return Payload(status=404, content=b"there is no such video", media_type="text/plain").response()
        log.note(entry, document=(job.name, job.digest), job_id=job.job_id)
        fault = self._backend.pick_fault(request, Operation.DOWNLOAD, job.name)
        return await self._backend.serve(fault, lambda: _film(request, job.digest, film), _plain_error)


def _film(request: Request, digest: str, film: Film) -> Payload:
    tag = f'"{digest[:32]}"'
    headers = {"etag": tag, "accept-ranges": "bytes"}
    asked = re.fullmatch(r"bytes=(\d+)-", request.headers.get("range", ""))
    size = len(film.content)
    if asked is None or request.headers.get("if-range", tag) != tag:
        return Payload(content=film.content, media_type=film.media_type, headers=headers)
    start = int(asked[1])
    if start >= size:
        return Payload(
            status=416, content=b"", media_type="text/plain", headers={"content-range": f"bytes */{size}"}
        )
    return Payload(
        status=206,
        content=film.content[start:],
        media_type=film.media_type,
        headers={**headers, "content-range": f"bytes {start}-{size - 1}/{size}"},
    )


def _plain_error(fault: Answer) -> Payload:
    return Payload(status=fault.status, content=fault.message.encode(), media_type="text/plain")


def _payload(reply: Reply) -> Payload:
    return Payload(
        status=reply.status, content=reply.content, media_type=reply.media_type, headers=reply.headers
    )
