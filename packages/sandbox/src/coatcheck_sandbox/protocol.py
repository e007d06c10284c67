"""What a provider's wire protocol is made of. `gitee` is an example of one."""

from abc import ABC, abstractmethod
from typing import ClassVar

from attrs import frozen
from starlette.requests import Request

from coatcheck_sandbox.errors import RequestRefused
from coatcheck_sandbox.jobs import Snapshot, Upload


@frozen(kw_only=True)
class Reply:
    """An answer in a provider's words."""

    status: int = 200
    body: dict[str, object]
    """What is sent as JSON."""


class WireProtocol(ABC):
    """Reads one provider's requests and puts its answers into that provider's words.

    It knows neither jobs nor faults nor the log: those are the same for all providers.
    """

    prefix: ClassVar[str]
    """Where the protocol is served, such as `/gitee/v1`; a client's base URL is the sandbox's and this."""
    submit_path: ClassVar[str]
    """Where a POST creates a job, below the prefix."""
    query_path: ClassVar[str]
    """Where a GET asks for a job, below the prefix; `{job_id}` stands for its id."""

    @abstractmethod
    def authorize(self, request: Request) -> None:
        """Check the caller's credentials.

        Raises:
            RequestRefused: they are missing or wrong.
        """

    @abstractmethod
    async def read_upload(self, request: Request) -> Upload:
        """The document of a creating request, whose body is read to its end.

        Raises:
            RequestRefused: something is missing.
        """

    @abstractmethod
    def render_created(self, snapshot: Snapshot) -> Reply:
        """The answer to a creating request."""

    @abstractmethod
    def render_job(self, snapshot: Snapshot) -> Reply:
        """The answer to a query.

        A `status_word` is used as it stands. A job that has succeeded but has no recognition is rendered as a
        success without its result.
        """

    @abstractmethod
    def render_refusal(self, refusal: RequestRefused) -> Reply:
        """The answer to a request that can't be served, in the provider's error envelope."""
