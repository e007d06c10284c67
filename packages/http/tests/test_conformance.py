import hmac
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta

import pytest
from attrs import frozen

from coatcheck.errors import CallbackRejected, QueryFailed
from coatcheck.handler import Callback, CallbackRequest, CancelContext, QueryContext, SubmitContext
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.task import JSON, QueryParams
from coatcheck_conformance import (
    Callbacks,
    Cancelling,
    Finding,
    HandlerConformance,
    HandlerSpec,
    Means,
    QueryingMany,
    Reply,
    Script,
)
from coatcheck_http import (
    ApiKey,
    HttpHandler,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    PreparedContext,
    StatusMap,
    UnreadableAnswer,
    check_document_url,
    first_text,
    lookup,
    segment,
)

MIB = 1024 * 1024


@frozen(kw_only=True)
class Poster:
    """What to print, by its URL, which the provider fetches."""

    url: str


class WebPress(HttpHandler[Poster]):
    """Prints posters."""

    key = "print:web"
    idempotency_window = timedelta(hours=24)
    not_created_statuses = frozenset({503})
    statuses = StatusMap(waiting="queued", running="printing", succeeded="printed", failed="jammed")

    def validate(self, params: Poster) -> None:
        """Refuse what the provider cannot fetch."""
        check_document_url(params.url)

    def build_submit(self, params: Poster, context: PreparedContext) -> HttpRequest:
        """Order, under our key."""
        headers = {"idempotency-key": context.idempotency_key}
        return HttpRequest.post("/orders", json={"url": params.url}, headers=headers)

    def parse_submit(self, response: HttpResponse, params: Poster, context: PreparedContext) -> SubmitResult:
        """Read the order."""
        return self.order(response)

    def order(self, response: HttpResponse) -> SubmitResult:
        """Return the order that an answer tells of."""
        order = first_text(response.json_object(), "id")
        if order is None:
            raise UnreadableAnswer("the answer has no id")
        return SubmitResult.accepted(order)

    def build_query(self, params: QueryParams, context: QueryContext) -> HttpRequest:
        """Ask for the order."""
        return HttpRequest.get(f"/orders/{segment(params.external_task_id)}")

    def parse_query(self, response: HttpResponse, params: QueryParams, context: QueryContext) -> QueryResult:
        """Read the order's state."""
        return self.state_of(response.json_object())

    def state_of(self, order: Mapping[str, JSON]) -> QueryResult:
        """Return what the document of an order says."""
        word = first_text(order, "state")
        if word is None:
            raise UnreadableAnswer("the answer has no state")
        match self.statuses.state_of(word):
            case "succeeded":
                return QueryResult.succeeded(order["sheet"], provider_status=word)
            case "failed":
                return QueryResult.failed("jam", "the press has jammed", provider_status=word)
            case _:
                return self.statuses.ongoing(word)

    def build_cancel(self, params: QueryParams, context: CancelContext) -> HttpRequest:
        """Withdraw the order."""
        return HttpRequest(method="DELETE", url=f"/orders/{segment(params.external_task_id)}")

    async def find_submission(self, params: Poster, context: SubmitContext) -> SubmitResult | None:
        """Look for an order under our key."""
        request = HttpRequest.get("/orders", query={"reference": context.idempotency_key})
        response = await self.ask(request, context)
        if response.status == 404:
            return None
        if not response.ok:
            raise QueryFailed(f"HTTP {response.status}")
        return self.order(response)

    async def query_many(
        self, batch: Sequence[QueryParams], contexts: Mapping[str, QueryContext]
    ) -> Mapping[str, QueryResult | Exception]:
        """Ask for several orders."""
        ids = [each.external_task_id for each in batch]
        request = HttpRequest.get("/orders", query={"ids": ",".join(ids)})
        response = await self.ask(request, next(iter(contexts.values())))
        orders = {each: lookup(response.json_object(), each) for each in ids}
        return {each: self.state_of(order) for each, order in orders.items() if isinstance(order, Mapping)}

    async def parse_callback(self, request: CallbackRequest, account_id: str | None) -> Callback:
        """Believe who knows the secret."""
        if not hmac.compare_digest(request.headers.get("x-token", ""), "callback-token"):
            raise CallbackRejected("the callback has not the token")
        try:
            order = first_text(json.loads(request.body), "id")
        except (ValueError, RecursionError) as error:
            raise CallbackRejected("the callback is no JSON") from error
        if order is None:
            raise CallbackRejected("the callback names no order")
        return Callback(external_task_ids=[order])


def callback(token: str) -> CallbackRequest:
    """Return a callback with a token."""
    return CallbackRequest(method="POST", path="/", headers={"x-token": token}, body=b'{"id": "o-1"}')


def press_spec() -> HandlerSpec:
    """Return how to make the handler, and what its provider answers."""
    return HandlerSpec(
        f"{__name__}:WebPress",
        key="print:web",
        params=lambda url: Poster(url=f"{url}/poster.pdf"),
        settings=lambda url: HttpSettings(
            base_url=url, read_timeout=timedelta(seconds=2), max_answer_bytes=2 * MIB
        ),
        accounts={"default": ApiKey("press-key-of-one"), "other": ApiKey("press-key-of-another")},
        script=Script(
            job="o-1",
            accepted={"id": "o-1"},
            status=lambda word: {"id": "o-1", "state": word, "sheet": "A1"},
            words={word: Means(state) for word, state in WebPress.statuses.words.items()},
            cancel=Cancelling(confirmed={}, refused=Reply.of({}, status=409)),
            find=Finding(found={"id": "o-1"}, nothing=Reply.of({}, status=404)),
            many=QueryingMany(
                status=lambda words: {job: {"state": word, "sheet": "A1"} for job, word in words.items()}
            ),
            callbacks=Callbacks(authentic=callback("callback-token"), forged=callback("another-token")),
        ),
        not_created_statuses=WebPress.not_created_statuses,
        answer_limit_bytes=4 * MIB,
    )


class TestHttpHandler(HandlerConformance):
    """A handler that leaves the wire to `HttpHandler` keeps every promise."""

    require = (
        "query_many",
        "cancel",
        "find_submission",
        "parse_callback",
        "idempotency_window",
        "two accounts",
    )

    @pytest.fixture
    def handler_spec(self) -> HandlerSpec:
        """It can do all that a handler can do."""
        return press_spec()
