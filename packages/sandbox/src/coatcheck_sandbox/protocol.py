"""What a provider's wire protocol is made of. `providers.gitee` is an example of one."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from attrs import field, frozen
from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.faults import Operation
from coatcheck_sandbox.jobs import Snapshot, Upload

__all__ = ["Reply", "WireProtocol", "read_json"]


@frozen(kw_only=True)
class Reply:
    """An answer in a provider's words."""

    status: int = 200
    body: object = b""
    """Sent as JSON, unless it is bytes."""
    headers: Mapping[str, str] = field(factory=dict)
    media_type: str = "application/json"

    @property
    def content(self) -> bytes:
        """The body as it is sent."""
        if isinstance(self.body, bytes):
            return self.body
        return json.dumps(self.body, ensure_ascii=False).encode()


class WireProtocol(ABC):
    """Reads one provider's requests and puts its answers into that provider's words.

    It knows neither jobs nor faults nor the log: those are the same for all providers.
    """

    prefix: ClassVar[str]
    """Where the protocol is served, such as `/gitee/v1`; a client's base URL is the sandbox's and this."""
    routes: ClassVar[Mapping[str, Operation]]
    """What each method and path below the prefix does, such as `{"GET /task/{job_id}": Operation.QUERY}`."""

    def operation_of(self, request: Request, routed: Operation) -> Operation:
        """What a request wants; overridden where the path alone doesn't tell."""
        del request
        return routed

    @abstractmethod
    def authorize(self, request: Request) -> None:
        """Check the caller's credentials, of every request; those to presigned URLs have none.

        Raises:
            RequestRefused: they are missing or wrong.
        """

    @abstractmethod
    async def read_upload(self, request: Request) -> Upload:
        """The document of a creating request, whose body is read to its end.

        Raises:
            RequestRefused: something is missing.
        """

    async def read_job_id(self, request: Request) -> str:
        """The id of the job that a request is about: by default `{job_id}` in its path.

        Raises:
            RequestRefused: there is none.
        """
        return str(request.path_params["job_id"])

    @abstractmethod
    def render_created(self, snapshot: Snapshot, request: Request) -> Reply:
        """The answer to a creating request."""

    @abstractmethod
    def render_job(self, snapshot: Snapshot, request: Request) -> Reply:
        """The answer to a query.

        A `status_word` is used as it stands. A job that has succeeded but has no recognition is rendered as a
        success without its result.
        """

    def render_result(self, snapshot: Snapshot, request: Request) -> Reply:
        """The answer to a request for the result of a job, where that is another than the query.

        Raises:
            RequestRefused: there is none, or not yet.
        """
        raise RequestRefused(404, "not_found", f"{request.url.path} is not there for job {snapshot.job_id}")

    def render_canceled(self, snapshot: Snapshot, request: Request) -> Reply:
        """The answer to a request to cancel; the snapshot shows the job after it.

        Raises:
            RequestRefused: it had ended before.
        """
        raise RequestRefused(404, "not_found", f"{request.url.path} is not there for job {snapshot.job_id}")

    async def answer(self, request: Request) -> Reply:
        """The answer to a request that is about no job, such as one for a token.

        Raises:
            RequestRefused: it breaks a rule.
        """
        raise RequestRefused(404, "not_found", f"{request.url.path} is not there")

    @abstractmethod
    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The answer to a request that can't be served, in the provider's error envelope."""

    def film_url(self, snapshot: Snapshot, request: Request) -> str:
        """Where the video of a job is, for whoever knows the URL."""
        return f"{str(request.base_url).rstrip('/')}/films/{snapshot.job_id}.mp4"

    def served_at(self, request: Request) -> str:
        """The URL at which the protocol is served, for absolute URLs in answers."""
        return f"{str(request.base_url).rstrip('/')}{self.prefix}"


async def read_json(request: Request) -> Mapping[str, object]:
    """The body of a request as a JSON object.

    Raises:
        RequestRefused: it is none.
    """
    try:
        document = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise RequestRefused(400, "invalid_json", f"the body is no JSON: {error}") from error
    if not isinstance(document, dict):
        raise RequestRefused(400, "invalid_json", "the body is JSON, but no object")
    return document
