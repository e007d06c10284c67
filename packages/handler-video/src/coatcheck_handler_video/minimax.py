"""MiniMax: video generation with Hailuo, and with MiniMax-H3.

Read in 2026 from QuantumNous/new-api (`relay/channel/task/hailuo`), vercel/ai at ed857f50, MiniMax-AI/MiniMax-MCP, the
API reference of platform.minimax.io, and docs.comfy.org (minimax-h3). Nothing was tried against the live service.

There are two versions of the API, told apart by the model's name and stored with the job's id. In v1 a job that is
done has the id of a file, and the file's URL is asked for with the credentials; the URL works for an hour or for nine,
by different accounts, and a query gives a new one. In v2 the URL is in the answer, jobs can be cancelled, and are
known for 7 days. A cancel of a job that has ended deletes its record, and is answered in the same way.

Before MiniMax accepts an address for callbacks it sends a challenge there, which has to be sent back within 3 seconds;
`parse_callback` answers it, if it came to our own address. Callbacks are not signed.

Not documented: an idempotency key, a look-up by a reference of ours, the answer about a job that is not there (one
that speaks of an invalid task_id, and HTTP 404, are taken for it), and the types of errors in v2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import timedelta
from typing import ClassVar

from attrs import evolve, frozen

from coatcheck.errors import InvalidParams, QueryFailed
from coatcheck.handler import Callback, CallbackRequest, CancelContext, QueryContext
from coatcheck.results import QueryResult
from coatcheck.retry import ExponentialRetry
from coatcheck.task import CancelOutcome, QueryParams
from coatcheck_handler_video.handler import VideoHandler
from coatcheck_handler_video.minimax_bodies import Api, api_of, body_of, modes_of_model
from coatcheck_handler_video.request import VideoMode, VideoRequest
from coatcheck_handler_video.result import Video, VideoResult
from coatcheck_http import (
    ErrorClass,
    HttpRequest,
    HttpResponse,
    JobState,
    PreparedContext,
    ProviderError,
    ProviderFacts,
    StatusMap,
    callback_ids,
    callback_json,
    first_object,
    first_text,
    number,
    segment,
)

__all__ = ["MinimaxVideo"]

_DEFAULT = "MiniMax-Hailuo-02"
_MAX_CHALLENGE_CHARACTERS = 1024


@frozen(kw_only=True)
class _File:
    """Where a job of v1 has put its video."""

    file_id: str
    width: int | None
    height: int | None


class MinimaxVideo(VideoHandler):
    """Videos by MiniMax."""

    key = "video:minimax"
    default_base_url = "https://api.minimax.io"
    default_model = _DEFAULT
    facts = ProviderFacts(
        name="MiniMax Hailuo",
        sources=(
            "QuantumNous/new-api, relay/channel/task/hailuo",
            "vercel/ai at ed857f50, minimax",
            "MiniMax-AI/MiniMax-MCP",
            "platform.minimax.io, API reference",
            "docs.comfy.org, minimax-h3",
        ),
        jobs_live=timedelta(days=7),
    )
    retry = ExponentialRetry(initial=timedelta(seconds=10), maximum=timedelta(seconds=60))
    """The provider advises to ask about a job every 10 seconds."""
    modes = frozenset(VideoMode) - {VideoMode.AUDIO_DRIVEN}
    supports = frozenset({"audio_url", "duration", "resolution", "aspect_ratio", "watermark", "model"})
    id_paths = ("task_id",)
    status_paths = ("task.status", "status")
    error_code_paths = ("base_resp.status_code", "error.type", "error.code")
    error_message_paths = ("base_resp.status_msg", "error.message")
    # platform.minimax.io: the words of v1, in capitals there, and of v2
    statuses = StatusMap(
        waiting="Preparing Queueing queued",
        running="Processing running",
        succeeded="Success succeeded",
        failed="Fail failed expired",
        canceled="cancelled",
    )
    error_codes: ClassVar[Mapping[str, ErrorClass]] = {
        "1002": ErrorClass.RATE_LIMITED,
        "1004": ErrorClass.AUTH,
        "1008": ErrorClass.QUOTA_OR_BILLING,
        "1026": ErrorClass.MODERATION,
        # the output was refused, so there was a job
        "1027": ErrorClass.TASK_FAILED,
        "2013": ErrorClass.INVALID_REQUEST,
        "2038": ErrorClass.AUTH,
        "2049": ErrorClass.AUTH,
    }

    def modes_of(self, model: str | None) -> AbstractSet[VideoMode]:
        """Return what this model makes videos from, by its name."""
        return modes_of_model(model or _DEFAULT)

    def validate(self, params: VideoRequest) -> None:
        """Refuse what the provider or the model does not have.

        Raises:
            InvalidParams: it asks for such a thing; the message names it.
        """
        super().validate(params)
        body_of(params, self._model_of(params))

    def build_submit(self, params: VideoRequest, context: PreparedContext) -> HttpRequest:
        """Return the creating request of the model's version; options go beneath what is set here."""
        model = self._model_of(params)
        body = {**params.options, **body_of(params, model)}
        callback = self.own_callback_url(context)
        if callback is not None:
            body["callback_url"] = callback
        return HttpRequest.post(f"/{api_of(model)}/video_generation", json=body)

    def create_query_params(self, response: HttpResponse, params: VideoRequest) -> QueryParams:
        """Return the id of the job, and the version of the API that has it."""
        return super().create_query_params(response, params).evolve(api=api_of(self._model_of(params)))

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Return a GET of the job.

        Raises:
            InvalidParams: the stored version is none.
        """
        path, job = "query/video_generation", params.external_task_id
        if _api(params) == "v1":
            return HttpRequest.get(f"/v1/{path}", query={"task_id": job})
        return HttpRequest.get(f"/v2/{path}/{segment(job)}")

    def build_cancel(self, params: QueryParams, context: CancelContext) -> HttpRequest:
        """Return the request that cancels a job of v2 that waits; one that has ended is deleted by it."""
        return HttpRequest(method="DELETE", url=f"/v2/video_generation/{segment(params.external_task_id)}")

    async def cancel(self, params: QueryParams, context: CancelContext) -> CancelOutcome:
        """Tell the provider to cancel a job of v2; v1 has no cancel."""
        if _api(params) == "v1":
            return CancelOutcome.UNSUPPORTED
        return await super().cancel(params, context)

    def read_error(self, response: HttpResponse) -> ProviderError | None:
        """Return the error of an answer; in v1 most come in HTTP 200.

        A job of v1 that has failed says why where errors do; that is an answer, and no error.
        """
        if not response.ok:
            return self.error_of(response)
        body, word = response.json(), self.status_word(response)
        good = first_text(body, "base_resp.status_code") in {None, "0"} and not first_object(body, "error")
        ended = word is not None and self.statuses.state_of(word) is JobState.FAILED
        return None if good or ended else self.error_of(response)

    def classify(self, code: str | None, http_status: int, message: str) -> ErrorClass:
        """Return what an error means; one about an invalid task_id says that there is no such job."""
        if "invalid task_id" in message.lower():
            return ErrorClass.NOT_FOUND_OR_EXPIRED
        return super().classify(code, http_status, message)

    def read_failure(self, response: HttpResponse, word: str) -> QueryResult:
        """Return why a job failed, or that it was given up."""
        body = response.json()
        code = first_text(body, "task.error.code", "base_resp.status_code")
        message = first_text(body, "task.error.message", "base_resp.status_msg")
        if code == "0":
            code = message = None
        if message is None:
            message = "the provider gave the job up" if word.lower() == "expired" else "the job failed"
        return QueryResult.failed(code, message, provider_status=word)

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> VideoResult | QueryResult | None:
        """Return the video of v2, or the file of v1, whose URL `fetch_result` asks for."""
        body = response.json()
        if _api(params) == "v2":
            url = first_text(body, "task.content.url")
            usage = first_object(body, "task.usage")
            return None if url is None else VideoResult(videos=(Video(url=url),), usage=usage)
        file_id = first_text(body, "file_id")
        if file_id is None:
            return None
        width, height = (number(body, name) for name in ("video_width", "video_height"))
        file = _File(
            file_id=file_id, width=int(width) if width else None, height=int(height) if height else None
        )
        return QueryResult.succeeded(file, provider_status=self.status_word(response))

    async def fetch_result(self, result: QueryResult, context: QueryContext) -> QueryResult:
        """Ask for the URL of a file, and copy the video if the settings say where to.

        Raises:
            QueryFailed: it cannot be had now.
        """
        if isinstance(result.result, _File):
            result = await self._with_url(result, result.result, context)
        return await super().fetch_result(result, context)

    async def _with_url(self, result: QueryResult, file: _File, context: QueryContext) -> QueryResult:
        request = HttpRequest.get("/v1/files/retrieve", query={"file_id": file.file_id})
        response = await self.ask(request, context)
        error = self.read_error(response)
        if error is not None:
            hint = self.retry_after(response, context)
            verdict = self._verdicts.of_query(error, hint, mended=self._mended(error, context))
            if isinstance(verdict, QueryFailed):
                raise verdict
            return verdict
        url = first_text(response.json(), "file.download_url")
        if url is None:
            return QueryResult.incomplete(provider_status=result.provider_status)
        video = Video(url=url, width=file.width, height=file.height)
        return evolve(result, result=VideoResult(videos=(video,)))

    async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
        """Say which job a callback to the address that only MiniMax was told is about; answer a challenge there.

        Raises:
            CallbackRejected: it came elsewhere, or names no job.
        """
        self.check_own_callback(request, account_id)
        body = callback_json(request)
        challenge = body.get("challenge")
        if isinstance(challenge, str) and 0 < len(challenge) <= _MAX_CHALLENGE_CHARACTERS:
            reply = json.dumps({"challenge": challenge}).encode()
            headers = {"content-type": "application/json"}
            return Callback(external_task_ids=(), reply_body=reply, reply_headers=headers)
        return Callback(external_task_ids=callback_ids(body, "task_id", "task.id", "id"))

    def _model_of(self, params: VideoRequest) -> str:
        return self.model_of(params) or _DEFAULT


def _api(params: QueryParams) -> Api:
    api = params.read("api", str)
    if api == "v1":
        return "v1"
    if api == "v2":
        return "v2"
    message = f"query param 'api' of {params.external_task_id!r} is {api!r}, not 'v1' or 'v2'"
    raise InvalidParams(message)
