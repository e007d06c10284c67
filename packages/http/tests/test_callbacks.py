import base64
import hashlib
import hmac
import json
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from attrs import evolve
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from coatcheck.errors import CallbackRejected, ConfigurationError
from coatcheck.handler import CallbackRequest
from coatcheck.task import JSON
from coatcheck_http.callbacks import (
    MAX_ID_CHARACTERS,
    SignatureEncoding,
    callback_header,
    callback_ids,
    callback_json,
    check_ed25519,
    check_hmac_sha256,
    check_own_callback,
    check_shared_header,
    check_standard_webhook,
    check_timestamp,
    own_callback_url,
    signature_bytes,
)

URL = "https://app.example.com/callbacks/video:acme"
TASK = "0197a5c0-7e1b-7c3d-9a55-0a1b2c3d4e5f"
SECRET = "callback-secret-of-one"
ODD_TEXTS = ["wrong", "", " ", "ünïcode", "署名", "\ud800", "\x00", "a" * 100_000]


def post(
    body: bytes = b"{}", *, headers: Mapping[str, str] | None = None, query: Mapping[str, str] | None = None
) -> CallbackRequest:
    """Return a callback."""
    return CallbackRequest(method="POST", path="/", headers=headers or {}, query=query or {}, body=body)


def called(url: str) -> CallbackRequest:
    """Return the callback that a provider makes to `url`."""
    return post(query={name: values[0] for name, values in parse_qs(urlsplit(url).query).items()})


def mac(secret: bytes, message: bytes) -> bytes:
    """Return an HMAC-SHA256, put together as RFC 2104 says."""
    key = (hashlib.sha256(secret).digest() if len(secret) > 64 else secret).ljust(64, b"\x00")
    inner = hashlib.sha256(bytes(each ^ 0x36 for each in key) + message).digest()
    return hashlib.sha256(bytes(each ^ 0x5C for each in key) + inner).digest()


def rejection(check: Callable[[], object]) -> str:
    """Return the message with which `check` rejects a callback, made sure to tell no secret."""
    with pytest.raises(CallbackRejected) as caught:
        check()
    message = str(caught.value)
    assert SECRET not in message
    assert OLD_SECRET.removeprefix("whsec_") not in message
    assert NEW_SECRET.removeprefix("whsec_") not in message
    return message


# -------------------------------------------------------------- our own addresses


def test_an_address_of_our_own_is_recognised() -> None:
    """The address that was made for a task names it when it is called."""
    assert check_own_callback(called(own_callback_url(URL, TASK, SECRET)), SECRET) == TASK


def test_the_token_is_an_hmac_of_a_label_and_the_task() -> None:
    """The token can be computed by hand, and is no plain HMAC of the task's id."""
    token = mac(SECRET.encode(), b"coatcheck callback of task\x00" + TASK.encode()).hex()
    assert own_callback_url(URL, TASK, SECRET) == f"{URL}?task={TASK}&token={token}"
    assert token != mac(SECRET.encode(), TASK.encode()).hex()


@pytest.mark.parametrize(
    ("before", "kept"),
    [
        ("?", ""),
        ("?a=1", "a=1&"),
        ("?a=1&a=2&b&c=%2F+x&=d", "a=1&a=2&b&c=%2F+x&=d&"),
        ("?task=old&a=1&token=old&tok%65n=older&task", "a=1&"),
        ("?tasks=1&&atoken=2", "tasks=1&atoken=2&"),
    ],
)
def test_the_rest_of_the_query_is_kept(before: str, kept: str) -> None:
    """Other parameters stay, byte for byte and in order; old ones of our names are replaced."""
    ours = own_callback_url(URL, TASK, SECRET).partition("?")[2]
    assert own_callback_url(URL + before, TASK, SECRET) == f"{URL}?{kept}{ours}"


def test_making_an_address_twice_changes_nothing() -> None:
    """An address that has a token already gets the one of the new task and secret."""
    once = own_callback_url(URL, "other", "other")
    assert own_callback_url(once, TASK, SECRET) == own_callback_url(URL, TASK, SECRET)


@pytest.mark.parametrize("task_id", ["a&token=b#c", "ünï/署 名", "?", "%41"])
def test_any_task_id_comes_back(task_id: str) -> None:
    """Ids that mean something in URLs are quoted."""
    assert check_own_callback(called(own_callback_url(f"{URL}#x", task_id, SECRET)), SECRET) == task_id


@pytest.mark.parametrize("missing", ["task", "token"])
@pytest.mark.parametrize("blank", [True, False])
def test_an_address_without_task_or_token_is_rejected(missing: str, *, blank: bool) -> None:
    """Without one of the two, the callback is unsigned."""
    query = {**called(own_callback_url(URL, TASK, SECRET)).query, missing: ""}
    if not blank:
        del query[missing]
    assert "unsigned" in rejection(lambda: check_own_callback(post(query=query), SECRET))


@pytest.mark.parametrize("token", [*(each for each in ODD_TEXTS if each), "0" * 64])
def test_a_forged_token_is_rejected(token: str) -> None:
    """A token of somebody's invention is rejected, whatever characters are in it, and not repeated."""
    message = rejection(lambda: check_own_callback(post(query={"task": TASK, "token": token}), SECRET))
    assert "is not that of the task" in message
    assert "0000" not in message


@pytest.mark.parametrize("task_id", ["other", f"{TASK} ", TASK.upper(), "\udcff", "署"])
def test_a_token_is_of_one_task_only(task_id: str) -> None:
    """A token that was seen cannot be used for another task."""
    query = {**called(own_callback_url(URL, TASK, SECRET)).query, "task": task_id}
    assert "is not that of the task" in rejection(lambda: check_own_callback(post(query=query), SECRET))


def test_a_token_under_another_secret_is_rejected() -> None:
    """Changing the secret ends all addresses."""
    request = called(own_callback_url(URL, TASK, "another"))
    assert "is not that of the task" in rejection(lambda: check_own_callback(request, SECRET))


@pytest.mark.parametrize("url", ["", "/callbacks", "ftp://app.example.com/", "https://", "http://["])
def test_no_address_is_made_of_what_is_none(url: str) -> None:
    """A callback URL that providers cannot call is the application's mistake."""
    with pytest.raises(ConfigurationError, match="the application's callback URL cannot be used"):
        own_callback_url(url, TASK, SECRET)


# -------------------------------------------------------------- Standard Webhooks

PUBLIC_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # in the tests of every library of Standard Webhooks
PUBLIC = post(
    b'{"test": 2432232314}',
    headers={
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    },
)
NOW = datetime.fromtimestamp(1614265330, UTC)
OLD_SECRET = "whsec_" + base64.b64encode(b"the key before the rotation").decode()
NEW_SECRET = "whsec_" + base64.b64encode(b"the key after it, more than 64 bytes" * 3).decode()


def signed(*secrets: str, body: bytes = b'{"id": "j1"}', at: str = "1614265330") -> CallbackRequest:
    """Return a callback that is signed under `secrets`, computed by hand."""
    content = f"msg_1.{at}.".encode() + body
    signatures = [
        "v1," + base64.b64encode(mac(base64.b64decode(each.partition("_")[2]), content)).decode()
        for each in secrets
    ]
    headers = {"webhook-id": "msg_1", "webhook-timestamp": at, "webhook-signature": " ".join(signatures)}
    return post(body, headers=headers)


def with_header(request: CallbackRequest, name: str, value: str | None) -> CallbackRequest:
    """Return `request` with another value of a header, or without it."""
    others = {each: text for each, text in request.headers.items() if each != name}
    return evolve(request, headers=others if value is None else {**others, name: value})


def test_the_public_example_is_accepted() -> None:
    """The example that Standard Webhooks' own libraries test themselves with is authentic, with or without the mark."""
    check_standard_webhook(PUBLIC, [PUBLIC_SECRET], now=NOW)
    check_standard_webhook(PUBLIC, [PUBLIC_SECRET.removeprefix("whsec_")], now=NOW)


def test_svix_has_other_names_for_the_headers() -> None:
    """The prefix names the headers, in any case; those under another prefix don't count."""
    svix = evolve(
        PUBLIC, headers={name.replace("webhook", "svix"): text for name, text in PUBLIC.headers.items()}
    )
    check_standard_webhook(svix, [PUBLIC_SECRET], prefix="Svix-", now=NOW)
    assert "no webhook-id header" in rejection(lambda: check_standard_webhook(svix, [PUBLIC_SECRET], now=NOW))


@pytest.mark.parametrize("theirs", [[OLD_SECRET], [NEW_SECRET], [OLD_SECRET, NEW_SECRET]])
@pytest.mark.parametrize("ours", [[OLD_SECRET, NEW_SECRET], [NEW_SECRET, OLD_SECRET]])
def test_any_secret_may_match_any_signature(theirs: list[str], ours: list[str]) -> None:
    """Secrets are rotated without losing a callback, in whatever order both sides change over."""
    check_standard_webhook(signed(*theirs), ours, now=NOW)


def test_other_signatures_beside_the_right_one_do_no_harm() -> None:
    """Signatures of other versions, under other keys, or broken are passed over."""
    right = signed(NEW_SECRET).headers["webhook-signature"]
    request = with_header(signed(), "webhook-signature", f"v1a,xx v1 v2,{right[3:]}  v1, v1,署 {right}")
    check_standard_webhook(request, [NEW_SECRET], now=NOW)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_standard_webhook_has_all_headers(name: str, value: str | None) -> None:
    """A callback without one of the three headers is rejected, and the message names it."""
    request = with_header(PUBLIC, name, value)
    message = rejection(lambda: check_standard_webhook(request, [PUBLIC_SECRET], now=NOW))
    assert f"no {name} header" in message


@pytest.mark.parametrize(
    "signature",
    ["v1a,g0hM9SsE", "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=", "v1", "V1,x", "v1=x", "署"],
)
def test_a_signature_of_version_1_is_needed(signature: str) -> None:
    """What is signed in a way that is not understood is rejected."""
    request = with_header(PUBLIC, "webhook-signature", signature)
    assert "no signature of version v1" in rejection(
        lambda: check_standard_webhook(request, [PUBLIC_SECRET], now=NOW)
    )


@pytest.mark.parametrize(
    "forged",
    [
        evolve(PUBLIC, body=b'{"test": 2432232315}'),
        evolve(PUBLIC, body=b""),
        with_header(PUBLIC, "webhook-id", "msg_other"),
        with_header(PUBLIC, "webhook-id", "mäg_\ud800"),
        with_header(PUBLIC, "webhook-timestamp", "1614265331"),
        with_header(PUBLIC, "webhook-timestamp", "01614265330"),
        *(with_header(PUBLIC, "webhook-signature", f"v1,{each.replace(chr(0), '')}") for each in ODD_TEXTS),
        signed(OLD_SECRET),
    ],
)
def test_a_forged_standard_webhook_is_rejected(forged: CallbackRequest) -> None:
    """Another body, id, time or key than what was signed, or an invented signature."""
    message = rejection(lambda: check_standard_webhook(forged, [PUBLIC_SECRET, NEW_SECRET], now=NOW))
    assert "no signature in the callback's webhook-signature is right" in message


@pytest.mark.parametrize("seconds", [-300, -299, 0, 300])
def test_a_standard_webhook_is_good_for_a_while(seconds: int) -> None:
    """Clocks may differ, and deliveries may take time, up to the tolerance."""
    check_standard_webhook(PUBLIC, [PUBLIC_SECRET], now=NOW + timedelta(seconds=seconds))


@pytest.mark.parametrize(("seconds", "when"), [(301, "301 s ago"), (-301, "301 s ahead")])
def test_a_stale_standard_webhook_is_rejected(seconds: int, when: str) -> None:
    """A well-signed callback from too long ago, or from the future, is rejected as a replay, with both times."""
    now = NOW + timedelta(seconds=seconds)
    message = rejection(lambda: check_standard_webhook(PUBLIC, [PUBLIC_SECRET], now=now))
    assert f"signed at 2021-02-25T15:02:10Z, {when}, and at most 300 s are taken" in message


def test_the_tolerance_can_be_chosen() -> None:
    """A handler whose provider says so takes more, or less; without `now`, it is this machine's time."""
    late = NOW + timedelta(minutes=9)
    check_standard_webhook(PUBLIC, [PUBLIC_SECRET], now=late, tolerance=timedelta(minutes=10))
    check_standard_webhook(PUBLIC, [PUBLIC_SECRET], tolerance=timedelta(days=365_000))
    rejection(lambda: check_standard_webhook(PUBLIC, [PUBLIC_SECRET]))


@pytest.mark.parametrize(
    ("secrets", "message"),
    [
        ([], "give a list of one"),
        (NEW_SECRET, "give a list of one"),
        (["whsec_not base64!"], "callback secret 1 of 1 is no base64"),
        ([NEW_SECRET, "whsec_署名"], "callback secret 2 of 2 is no base64"),
        ([NEW_SECRET, f"{NEW_SECRET}\n"], "callback secret 2 of 2 is no base64"),
        ([NEW_SECRET, "whsec_"], "callback secret 2 of 2 is blank"),
        (["", NEW_SECRET], "callback secret 1 of 2 is blank"),
    ],
)
def test_a_broken_secret_is_our_own_mistake(secrets: list[str], message: str) -> None:
    """A secret that cannot be used shows at the first callback, authentic or not, and is not told."""
    for request in (signed(NEW_SECRET), post()):
        with pytest.raises(ConfigurationError, match=message) as caught:
            check_standard_webhook(request, secrets, now=NOW)
        assert NEW_SECRET.removeprefix("whsec_") not in str(caught.value)
        assert "not base64!" not in str(caught.value)


# -------------------------------------------------------------- other schemes


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "+1", "1.5", " 1614265330", "1e9", "١٢٣", "\ud800", "9" * 12]
)
def test_a_timestamp_is_a_number_of_seconds(text: str) -> None:
    """What is no plain number of Unix seconds, such as milliseconds, is rejected."""
    assert "is no number of Unix seconds" in rejection(lambda: check_timestamp(text, now=NOW))


def test_no_timestamp_is_too_large_to_be_compared() -> None:
    """The largest that is read is rejected as one from the future, and the smallest as an old one."""
    assert "s ahead" in rejection(lambda: check_timestamp("9" * 11, now=NOW))
    assert "s ago" in rejection(lambda: check_timestamp("0", now=NOW))
    check_timestamp("1614265330", now=NOW)


def test_a_header_that_was_asked_for_is_recognised() -> None:
    """The provider sends the header that it was told to send; names of headers have no case."""
    check_shared_header(post(headers={"x-callback-secret": SECRET}), "X-Callback-Secret", SECRET)
    check_shared_header(post(headers={"x-key": "schlüssel"}), "x-key", "schlüssel")


@pytest.mark.parametrize("value", [*ODD_TEXTS, SECRET.upper(), f"{SECRET} ", SECRET[:-1]])
def test_another_header_than_was_asked_for_is_rejected(value: str) -> None:
    """A wrong, blank or strange value is rejected and not repeated; so is none."""
    message = rejection(lambda: check_shared_header(post(headers={"x-key": value}), "x-key", SECRET))
    assert "x-key header" in message
    assert "wrong" not in message
    assert "no x-key header" in rejection(lambda: check_shared_header(post(), "x-key", SECRET))


def test_a_header_is_found_in_any_case() -> None:
    """Handlers write names as the provider's pages do."""
    assert callback_header(post(headers={"x-hmac-signature": "abc"}), "X-HMAC-SIGNATURE") == "abc"


@pytest.mark.parametrize(
    ("encoding", "write"),
    [
        ("hex", bytes.hex),
        ("hex", lambda digest: digest.hex().upper()),
        ("base64", lambda digest: base64.b64encode(digest).decode()),
    ],
)
def test_an_hmac_is_recognised(encoding: SignatureEncoding, write: Callable[[bytes], str]) -> None:
    """A message with its HMAC-SHA256, in either encoding, is authentic; another message or secret is not."""
    message = b"1614265330\nnonce\n\xff\x00payload"
    signature = write(mac(SECRET.encode(), message))
    check_hmac_sha256(message, signature, SECRET, encoding=encoding)
    for other, secret in ((message + b" ", SECRET), (b"", SECRET), (message, "another")):
        text = rejection(lambda: check_hmac_sha256(other, signature, secret, encoding=encoding))  # noqa: B023 - called at once
        assert text == "the callback's HMAC-SHA256 signature is not right under the account's secret"


def test_hex_is_the_usual_encoding_of_an_hmac() -> None:
    """RFC 4231's second test case, as it is printed there."""
    printed = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
    check_hmac_sha256(b"what do ya want for nothing?", printed, "Jefe")


@pytest.mark.parametrize("encoding", ["hex", "base64"])
@pytest.mark.parametrize("signature", [*ODD_TEXTS, "YWI", "YWI=", "ab", "0" * 63])
def test_what_is_no_hmac_is_rejected(signature: str, encoding: SignatureEncoding) -> None:
    """Broken, short, long and strange signatures are rejected and not repeated."""
    message = rejection(lambda: check_hmac_sha256(b"x", signature, SECRET, encoding=encoding))
    assert "is not right" in message or message == f"the callback's signature is no {encoding}"


def test_signatures_are_read_in_both_encodings() -> None:
    """Handlers get the bytes of a signature for `check_ed25519`."""
    assert signature_bytes("00fF", "hex") == signature_bytes("AP8=", "base64") == b"\x00\xff"
    assert rejection(lambda: signature_bytes("0", "hex")) == "the callback's signature is no hex"
    for broken in ("AP8", "A!P8=", "AP8=\n"):
        text = rejection(lambda: signature_bytes(broken, "base64"))  # noqa: B023 - called at once
        assert text == "the callback's signature is no base64"


@pytest.mark.parametrize("secret", ["", " \n"])
def test_a_blank_secret_accepts_nothing(secret: str) -> None:
    """An account without a secret is a mistake that is told, since anybody could sign for it."""
    empty_mac = hmac.new(secret.encode(), b"", "sha256").hexdigest()
    for check in (
        lambda: own_callback_url(URL, TASK, secret),
        lambda: check_own_callback(post(query={"task": TASK, "token": empty_mac}), secret),
        lambda: check_shared_header(post(headers={"x-key": secret}), "x-key", secret),
        lambda: check_hmac_sha256(b"", empty_mac, secret),
    ):
        with pytest.raises(ConfigurationError, match="the callback secret is blank"):
            check()


# -------------------------------------------------------------- Ed25519

RFC_8032 = [
    (
        b"",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        (
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
            "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
        ),
    ),
    (
        b"\xaf\x82",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        (
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
            "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
        ),
    ),
]
"""Messages, public keys and signatures of tests 1 and 3 in section 7.1."""


@pytest.mark.parametrize(("message", "key", "signature"), RFC_8032)
def test_the_examples_of_rfc_8032_are_accepted(message: bytes, key: str, signature: str) -> None:
    """The signatures that are printed in the standard are right, whichever of several keys made them."""
    other = Ed25519PrivateKey.from_private_bytes(b"\x01" * 32).public_key().public_bytes_raw()
    right = bytes.fromhex(key)
    for keys in ([right], [other, right], [right, other], [b"\xff" * 32, right]):
        check_ed25519(message, signature_bytes(signature, "hex"), keys)


def test_a_forged_ed25519_signature_is_rejected() -> None:
    """Another message or key than what was signed, or no signature at all."""
    message, key, signature = RFC_8032[1][0], bytes.fromhex(RFC_8032[1][1]), bytes.fromhex(RFC_8032[1][2])
    other = bytes.fromhex(RFC_8032[0][1])
    for forged in (
        (b"\xaf\x83", signature, [key]),
        (message, signature, [other]),
        (message, signature, [b"\xff" * 32]),
        (message, bytes.fromhex(RFC_8032[0][2]), [key, other]),
        (message, signature[:-1], [key]),
        (message, signature + b"\x00", [key]),
        (message, b"", [key]),
    ):
        text = rejection(lambda: check_ed25519(*forged))  # noqa: B023 - called at once
        assert text == "the callback's Ed25519 signature is not right under any of the public keys"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([], "without a public key"),
        ([bytes(32), b"short"], "public key 2 of 2 has 5 bytes; Ed25519 keys have 32"),
    ],
)
def test_a_broken_public_key_is_our_own_mistake(keys: list[bytes], message: str) -> None:
    """Keys that cannot be used are not the callback's fault."""
    with pytest.raises(ConfigurationError, match=message):
        check_ed25519(b"", bytes(64), keys)


@pytest.mark.parametrize(
    "module", ["cryptography.exceptions", "cryptography.hazmat.primitives.asymmetric.ed25519"]
)
def test_without_the_extra_it_is_named(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who lacks the library is told what to install."""
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match=r"pip install 'coatcheck-http\[ed25519\]'"):
        check_ed25519(b"", bytes(64), [bytes(32)])


# -------------------------------------------------------------- bodies


def test_a_body_is_a_json_object() -> None:
    """The body is read as JSON in UTF-8, with or without a byte order mark."""
    body = '{"id": "j1", "名": [1, 2.5, null]}'.encode()
    assert callback_json(post(body)) == {"id": "j1", "名": [1, 2.5, None]}
    assert callback_json(post(b"\xef\xbb\xbf" + body)) == callback_json(post(body))
    assert callback_json(post(b"{}")) == {}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "of 0 bytes, is no JSON in UTF-8"),
        (b"\xff\xfe", "is no JSON in UTF-8"),
        ('{"id": "j1"}'.encode("utf-16"), "is no JSON in UTF-8"),
        (b'{"id": "\xe9"}', "is no JSON in UTF-8"),
        (b"id=j1", "is no JSON in UTF-8"),
        (b'{"id": "j1"} x', "is no JSON in UTF-8"),
        (b'{"id": NaN}', "NaN is no JSON value"),
        (b'{"id": -Infinity}', "-Infinity is no JSON value"),
        (b"[" * 100_000, "is no JSON in UTF-8"),
        (b'{"a":' * 100_000, "is no JSON in UTF-8"),
        (b'{"id": ' + b"1" * 5000 + b"}", "is no JSON in UTF-8"),
        (b"[]", "is JSON, but no object"),
        (b"null", "is JSON, but no object"),
        (b'"j1"', "is JSON, but no object"),
        (b"1", "is JSON, but no object"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_another_body_is_rejected(body: bytes, message: str) -> None:
    """Garbage of every kind is rejected, and the message says of which."""
    assert message in rejection(lambda: callback_json(post(body)))


@pytest.mark.parametrize(
    ("document", "job"),
    [
        ({"id": "j1", "data": {"task_id": "j2"}}, "j1"),
        ({"id": " ", "data": {"task_id": " j2 "}}, "j2"),
        ({"id": {}, "data": {"task_id": 17}}, "17"),
        ({"id": None, "data": {"task_id": "名"}}, "名"),
        ({"id": "x" * MAX_ID_CHARACTERS}, "x" * MAX_ID_CHARACTERS),
    ],
    ids=lambda value: str(value)[:20],
)
def test_the_first_id_is_the_jobs(document: JSON, job: str) -> None:
    """The id is the first that is there, without the blanks around it."""
    assert callback_ids(document, "id", "data.task_id") == (job,)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "there is no id at id or data.task_id"),
        ([], "there is no id at id or data.task_id"),
        (None, "there is no id at id or data.task_id"),
        ({"id": "", "data": {"task_id": [1]}}, "there is no id at id or data.task_id"),
        ({"id": True, "data": []}, "there is no id at id or data.task_id"),
        (json.loads('{"id": "\\ud800"}'), "holds a lone surrogate"),
        ({"id": "x" * (MAX_ID_CHARACTERS + 1)}, "has 1025 characters, and an id has at most 1024"),
    ],
    ids=lambda value: str(value)[:20].encode("ascii", "backslashreplace").decode(),
)
def test_a_callback_without_an_id_is_rejected(document: JSON, message: str) -> None:
    """What names no job, or one that no store could look up, is rejected; the message is short and can be printed."""
    told = rejection(lambda: callback_ids(document, "id", "data.task_id"))
    assert message in told
    assert len(told.encode("utf-8")) < 200
