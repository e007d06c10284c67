import json
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest

from coatcheck.errors import ConfigurationError, QueryFailed, SubmitDeferred
from coatcheck.handler import QueryContext
from coatcheck.results import QueryResult
from coatcheck.task import QueryParams
from coatcheck_http import (
    ApiKey,
    GoogleCalls,
    GoogleServiceAccount,
    HttpRequest,
    HttpResponse,
    HttpSettings,
    JobHandler,
    PreparedContext,
    StatusMap,
)
from coatcheck_http.google_status import code_of
from coatcheck_http.testing import Claim, Reply, ScriptedServer

JOB = QueryParams(external_task_id="op1")
TOKEN = Reply.of({"access_token": "minted-token", "expires_in": 3600})


class Cloud(GoogleCalls[str], JobHandler[str]):
    """An API of Google's."""

    key = "cloud:test"
    default_base_url = "https://cloud.example.com"
    statuses = StatusMap(running="RUNNING")
    params_type = str
    token_fresh = timedelta()

    def build_submit(self, params: str, context: PreparedContext) -> HttpRequest:
        """Ask."""
        return HttpRequest.post("/v1/ops", json=params)

    def read_result(
        self, response: HttpResponse, params: QueryParams, context: QueryContext
    ) -> QueryResult | None:
        """Return nothing."""
        return None


@pytest.fixture(scope="module")
def private_key() -> str:
    """A key as Google gives it out."""
    rsa: Any = import_module("cryptography.hazmat.primitives.asymmetric.rsa")
    forms: Any = import_module("cryptography.hazmat.primitives.serialization")
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem: bytes = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    return pem.decode()


def service_account(server: ScriptedServer, private_key: str) -> GoogleServiceAccount:
    """Return an account whose tokens come from this server."""
    document = {
        "client_email": "worker@p.example.com",
        "private_key": private_key,
        "private_key_id": "k1",
        "token_uri": f"{server.url}/token",
    }
    return GoogleServiceAccount(json.dumps(document))


async def test_a_token_that_is_refused_is_hidden_and_minted_anew(private_key: str) -> None:
    """Also where the provider repeats it aloud in the very answer that refuses it."""
    refused = Reply.of(
        {
            "error": {
                "code": 401,
                "status": "UNAUTHENTICATED",
                "message": "your token minted-token has expired",
            }
        },
        status=401,
    )
    async with ScriptedServer([TOKEN, refused, TOKEN, Reply.of({"status": "RUNNING"})]) as server:
        handler = Cloud(service_account(server, private_key), settings=HttpSettings(base_url=server.url))
        await handler.open()
        with pytest.raises(QueryFailed) as caught:
            await handler.query(JOB, Claim().query)
        await handler.query(JOB, Claim().query)
        await handler.close()
    assert "minted-token" not in str(caught.value)
    assert "***" in str(caught.value)
    assert [each.target for each in server.requests] == ["/token", "/op1", "/token", "/op1"]


async def test_without_a_token_a_submission_waits(private_key: str) -> None:
    """Nothing was sent to the API; who is to blame is told apart."""
    for status, blamed in ((400, False), (503, True)):
        no = Reply.of({"error": "invalid_grant", "error_description": "no such account"}, status=status)
        async with ScriptedServer([no]) as server:
            handler = Cloud(service_account(server, private_key), settings=HttpSettings(base_url=server.url))
            await handler.open()
            claim = Claim()
            with pytest.raises(SubmitDeferred, match="no such account") as caught:
                await handler.submit("x", claim.submit)
            await handler.close()
        assert (caught.value.blames_provider, claim.asked) == (blamed, 0)


async def test_a_ready_token_is_used_as_it_is() -> None:
    """Anything else is told with what is possible."""
    made = await Cloud(ApiKey("ready")).authenticate(HttpRequest.get("https://x.example.com/"), Claim().query)
    assert made.headers["authorization"] == "Bearer ready"
    with pytest.raises(ConfigurationError, match="GoogleServiceAccount or an ApiKey"):
        await Cloud(object()).authenticate(HttpRequest.get("https://x.example.com/"), Claim().query)


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ({"code": 5}, "NOT_FOUND"),
        ({"code": 0}, None),
        ({}, None),
        ({"code": 99}, "99"),
        ({"code": True}, None),
    ],
)
def test_codes_have_words(status: dict[str, int], word: str | None) -> None:
    """A number that is none of the known ones stays one."""
    assert code_of(status) == word
