import json

import pytest

from coatcheck.errors import InvalidParams
from coatcheck_http import FilePart, HttpRequest, HttpResponse, UnreadableAnswer


def test_json_is_encoded_for_signatures() -> None:
    """An encoded request has its bytes and their type, and encoding it again changes nothing."""
    request = HttpRequest.post("/x", json={"a": "ü"}).encoded()
    assert request.content == '{"a": "ü"}'.encode()
    assert request.headers == {"content-type": "application/json"}
    assert request.encoded() is request


def test_a_type_that_is_given_stays() -> None:
    """As for providers with JSON types of their own."""
    request = HttpRequest.post(
        "/x", json={}, headers={"Content-Type": "application/x-amz-json-1.1"}
    ).encoded()
    assert request.headers == {"Content-Type": "application/x-amz-json-1.1"}


def test_forms_are_encoded() -> None:
    """Without files a form is URL-encoded, with them it is multipart."""
    plain = HttpRequest.post("/x", form={"a b": "c&d"}).encoded()
    assert plain.content == b"a+b=c%26d"
    assert plain.headers["content-type"] == "application/x-www-form-urlencoded"
    part = FilePart(name="file", file_name='q"uote.pdf', content=b"%PDF", content_type="application/pdf")
    multi = HttpRequest.post("/x", form={"model": "m"}, files=[part]).encoded()
    assert multi.headers["content-type"].startswith("multipart/form-data; boundary=")
    body = multi.content or b""
    assert b'name="model"\r\n\r\nm\r\n' in body
    assert b'filename="q%22uote.pdf"\r\nContent-Type: application/pdf\r\n\r\n%PDF\r\n' in body


def test_a_request_without_body_has_none() -> None:
    """A GET says nothing about content."""
    request = HttpRequest.get("/x", query={"a": "1"}).encoded()
    assert (request.content, request.headers) == (None, {})
    assert request.with_query(b="2").query == {"a": "1", "b": "2"}


def test_two_bodies_are_refused() -> None:
    """Which one counts would be anybody's guess."""
    with pytest.raises(InvalidParams, match="one of"):
        HttpRequest.post("/x", json={}, form={"a": "b"})


@pytest.mark.parametrize("value", [float("nan"), {1: object()}])
def test_what_is_no_json_is_refused_before_it_is_sent(value: object) -> None:
    """It is the caller's mistake, and certain."""
    with pytest.raises(InvalidParams, match="JSON"):
        HttpRequest.post("/x", json=value).encoded()  # type: ignore[arg-type] # on purpose


@pytest.mark.parametrize(
    "headers", [{"a": "b\r\nc: d"}, {"a": "\x00"}, {"a": "ü"}, {"a b": "c"}, {"": "c"}, {"a:": "c"}]
)
def test_headers_that_break_http_are_refused(headers: dict[str, str]) -> None:
    """Nothing can be smuggled in by a value, and the value is not repeated."""
    with pytest.raises(InvalidParams, match="header"):
        HttpRequest.get("/x", headers=headers)


def test_headers_are_replaced_whatever_their_case() -> None:
    """No header is sent twice."""
    request = HttpRequest.get("/x", headers={"Content-Type": "a"}).with_headers(content_type="b")
    assert request.headers == {"content-type": "b"}


def test_nothing_secret_is_printed() -> None:
    """Headers, query and bodies stay out of a request's and an answer's repr."""
    request = HttpRequest.post("/x", json={"a": "hidden"}, query={"t": "hidden"}, headers={"x": "hidden"})
    answer = HttpResponse(status=200, headers={"x": "hidden"}, body=b"hidden", url="hidden")
    assert "hidden" not in repr(request) + repr(answer)


def test_answers_are_read() -> None:
    """The header in any case, the text whatever its bytes, and JSON once."""
    answer = HttpResponse(status=200, headers={"x-id": "1"}, body=b'\xef\xbb\xbf{"a": 1}')
    assert (answer.header("X-Id"), answer.header("y")) == ("1", None)
    assert answer.json() == {"a": 1}
    assert answer.json_object() is answer.json()
    assert HttpResponse(status=500, body=b"\xff").text == "\ufffd"
    assert [HttpResponse(status=each).ok for each in (199, 200, 299, 300)] == [False, True, True, False]


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b'{"a": NaN}', b"[" * 200_000, b"\xff\xfe\x00", b"1" * 5000, b'{"a": 1} x']
)
def test_an_answer_that_is_no_json_says_so(body: bytes) -> None:
    """Garbage, NaN, depth and endless numbers are an unreadable answer and no crash."""
    answer = HttpResponse(status=200, body=body)
    for _ in range(2):
        with pytest.raises(UnreadableAnswer, match="HTTP 200"):
            answer.json()


@pytest.mark.parametrize("document", [[], "x", 1, None])
def test_an_answer_that_is_no_object_says_so(document: object) -> None:
    """JSON of another shape is unreadable, too."""
    with pytest.raises(UnreadableAnswer, match="no object"):
        HttpResponse(status=200, body=json.dumps(document).encode()).json_object()
