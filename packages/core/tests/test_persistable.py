"""What can be stored, what is refused with its path, and the proof that it comes back."""

import collections
import dataclasses
import enum
import io
import math
import os
import socket
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import pydantic
import pytest
from attrs import define, field, frozen
from hypothesis import event, given
from hypothesis import strategies as st

from coatcheck.codec import dumps, loads
from coatcheck.errors import InvalidParams, NotPersistable
from coatcheck.persistable import MAX_DEPTH, from_json, to_json
from coatcheck.task import JSON

T = TypeVar("T")
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSONS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


class Colour(enum.StrEnum):
    """An enum of text."""

    RED = "red"


class Size(enum.IntEnum):
    """An enum of numbers."""

    SMALL = 1


class Kind(enum.Enum):
    """An enum of anything."""

    NOTHING = None
    SOME = "some"


class Point(NamedTuple):
    """A tuple with names."""

    x: int
    label: str = ""


class Link(str):
    """Text of a kind of its own."""

    __slots__ = ()

    def __str__(self) -> str:
        """Show itself otherwise."""
        return "shown"


class Count(int):
    """A number of a kind of its own."""


class Weight(float):
    """Another one."""


@frozen
class Page:
    """A part of a request."""

    image: Any = None
    turn: int = 0


KEY = uuid.UUID(int=7)
POINT, LINK, COUNT, WEIGHT = Point(1, "a"), Link("x"), Count(1), Weight(1.5)


@frozen
class Request:
    """Everything that params may hold."""

    url: str
    pages: tuple[Page, ...] = ()
    size: Size = Size.SMALL
    colour: Colour | None = None
    kind: Kind = Kind.SOME
    when: datetime | None = None
    day: date = date(2030, 1, 1)
    hour: time = time(12, 30)
    wait: timedelta = timedelta()
    key: uuid.UUID = KEY
    price: Decimal = Decimal("1.10")
    point: Point = POINT
    pair: tuple[int, str] = (1, "a")
    by_colour: Mapping[Colour, int] = field(factory=dict)
    words: Sequence[str] = field(factory=list)
    more: Mapping[str, JSON] = field(factory=dict)
    anything: JSON = None
    either: str | int | None = None
    mode: Literal["fast", "good"] = "fast"
    link: Link = LINK
    count: Count = COUNT
    weight: Weight = WEIGHT
    ratio: float = 1
    _private: bool = True
    made: str = field(init=False, default="here")


@dataclasses.dataclass
class Old:
    """A dataclass with everything in it."""

    requests: list[Request]
    parent: "Old | None" = None
    made: int = dataclasses.field(init=False, default=7)


@dataclasses.dataclass
class Small:
    """A dataclass that pydantic knows too."""

    words: list[str]


class Model(pydantic.BaseModel):
    """A pydantic model."""

    url: pydantic.HttpUrl
    when: datetime | None = None
    quality: int = pydantic.Field(default=1, alias="q")
    inner: "Model | None" = None
    small: "Small | None" = None


class Strict(pydantic.BaseModel, strict=True, extra="allow"):
    """A strict pydantic model that takes more than it declares."""

    when: datetime


@frozen
class Box(Generic[T]):
    """A class with a variable."""

    content: T


FULL = Request(
    url="https://example.com/ä\x00.pdf",
    pages=(Page({"a": [1, None]}), Page(turn=90)),
    colour=Colour.RED,
    kind=Kind.NOTHING,
    when=datetime(2030, 1, 1, 12, 0, 0, 123456, tzinfo=timezone(timedelta(hours=8))),
    wait=timedelta(milliseconds=1500),
    by_colour={Colour.RED: 2**70},
    words=["a", "b"],
    more={"a": {"b": [1.5]}},
    anything=[{"a": None}],
    either=5,
    mode="good",
)


@pytest.mark.parametrize(
    "value",
    [
        FULL,
        Request(url="x", when=datetime(2030, 1, 1), either="text"),  # noqa: DTZ001 - naive ones come back too
        Old([FULL, FULL], Old([])),
        Model(url=pydantic.HttpUrl("https://example.com/"), when=datetime(2030, 1, 1, tzinfo=UTC), q=3),
        Model(
            url=pydantic.HttpUrl("https://a.example/"),
            inner=Model(url=pydantic.HttpUrl("https://b.example/")),
        ),
        Model(url=pydantic.HttpUrl("https://a.example/"), small=Small(["a"])),
        Strict.model_validate({"when": datetime(2030, 1, 1, tzinfo=UTC), "note": [1]}),
        [Page(turn=1)] and {"a": [1, None, True, 2.5, "x"]},
        [],
        (),
        ("a", 1),
        "text",
        7,
        1.5,
        True,
        None,
        Colour.RED,
        timedelta(seconds=1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_can_be_stored_comes_back_equal(value: Any) -> None:
    """Plain JSON and classes of all three kinds survive the way through text, in their own type."""
    raw = to_json(value)
    back = from_json(loads(dumps(raw)), type(value))
    assert back == value
    assert type(back) is type(value)


@given(JSONS)
def test_plain_json_is_stored_as_it_is(value: Any) -> None:
    """JSON is left alone, and shares no container with what was given."""
    raw = to_json(value)
    assert raw == value
    assert type(raw) is type(value)
    assert raw is not value or not isinstance(value, (list, dict)) or not value


@given(
    st.timedeltas(),
    st.datetimes(timezones=st.none() | st.timezones()),
    st.uuids(),
    st.decimals(allow_nan=False),
)
def test_dates_durations_and_numbers_are_exact(
    wait: timedelta, when: datetime, key: uuid.UUID, price: Decimal
) -> None:
    """What has no form of its own in JSON is either stored exactly or refused."""
    request = Request(url="x", wait=wait, when=when, key=key, price=price)
    try:
        raw = to_json(request)
    except NotPersistable as error:
        long, endless = abs(wait) > timedelta(days=100 * 365), price.is_infinite()
        event(error.path)
        if not (long or endless or error.path == "params.when"):
            raise
    else:
        assert from_json(loads(dumps(raw)), Request) == request


def test_whole_seconds_are_whole_numbers() -> None:
    """A duration is stored as people write it."""
    assert to_json(Request(url="x", wait=timedelta(minutes=1)))["wait"] == 60  # type: ignore[index,call-overload]


def cyclic() -> Any:
    """Return a list in itself."""
    value: list[Any] = []
    value.append({"again": value})
    return value


def deep(levels: int) -> Any:
    """Return a list in a list in a list."""
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


def bomb() -> Any:
    """Return a few lists that stand for more values than any memory holds."""
    value: Any = [0]
    for _ in range(MAX_DEPTH - 10):
        value = [value, value]
    return value


async def coroutine() -> None:
    """Do nothing."""


class Client:
    """Something with a connection."""

    def close(self) -> None:
        """End it."""


class Upload:
    """Something that can be read, as frameworks give it."""

    async def read(self) -> bytes:
        """Return nothing."""
        return b""


class Once:
    """Something that is read once."""

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        raise StopIteration


class Rooted:
    """Something that is a path."""

    def __fspath__(self) -> str:
        return "/secret/path"


REFUSED: tuple[tuple[Callable[[], Any], str], ...] = (
    (lambda: Path("/secret/path"), "upload the file"),
    (lambda: PurePosixPath("/secret/path"), "upload the file"),
    (Rooted, "upload the file"),
    (lambda: io.BytesIO(b"secret"), "open file, stream or socket"),
    (lambda: io.StringIO("secret"), "open file, stream or socket"),
    (Upload, "open file, stream or socket"),
    (lambda: b"secret", "raw bytes"),
    (lambda: bytearray(b"secret"), "raw bytes"),
    (lambda: memoryview(b"secret"), "raw bytes"),
    (lambda: (each for each in "secret"), "read once"),
    (lambda: iter(["secret"]), "read once"),
    (Once, "read once"),
    (Client, "client or connection"),
    (lambda: len, "what is called is code"),
    (lambda: lambda: "secret", "what is called is code"),
    (lambda: Page, "a class is code"),
    (lambda: sys, "a module is code"),
    (lambda: {"secret"}, "no order"),
    (lambda: frozenset({"secret"}), "no order"),
    (lambda: pydantic.SecretStr("secret"), "credentials are never stored"),
    (lambda: math.nan, "NaN or infinite"),
    (lambda: -math.inf, "NaN or infinite"),
    (lambda: Decimal("NaN"), "NaN or infinite"),
    (lambda: Decimal("Infinity"), "NaN or infinite"),
    (lambda: "secret\ud800", "lone surrogate"),
    (lambda: Link("\udfff"), "lone surrogate"),
    (lambda: {"secret\ud800": 1}, "lone surrogate"),
    (lambda: {1: "secret"}, "keys in JSON are strings"),
    (lambda: {None: "secret"}, "keys in JSON are strings"),
    (lambda: 10**5000, "thousands of digits"),
    (object, "no plain data"),
    (lambda: 1j, "no plain data"),
    (lambda: collections.deque(["secret"]), "no plain data"),
    (lambda: range(3), "no plain data"),
    (lambda: [1, {"secret": (1, 2)}][1], "a tuple becomes a list"),
    (lambda: datetime(2030, 1, 1, tzinfo=UTC), "a datetime.datetime becomes a str"),
)
"""Ways to make what cannot be stored, and why not."""


@pytest.mark.parametrize(("make", "reason"), REFUSED, ids=lambda each: each if isinstance(each, str) else "")
def test_what_cannot_be_stored_is_named_by_its_path(make: Callable[[], Any], reason: str) -> None:
    """The error leads to the culprit, says why and what to do, and does not quote it."""
    request = Request(url="x", pages=(Page(), Page(), Page(), Page(image=make())))
    with pytest.raises(NotPersistable, match=reason) as caught:
        to_json(request)
    assert "params.pages[3].image" in caught.value.path
    assert "secret" not in str(caught.value).replace("['secret", "").replace(".secret:", "")


def test_open_things_are_refused() -> None:
    """Files and sockets of the operating system end with the process."""
    with tempfile.TemporaryFile() as file, socket.socket() as sock, os.fdopen(os.dup(0)) as stream:
        for each in (file, sock, stream):
            with pytest.raises(NotPersistable, match="open file, stream or socket"):
                to_json({"a": each})
    waiting = coroutine()
    with pytest.raises(NotPersistable, match="read once"):
        to_json(waiting)
    waiting.close()


def test_paths_name_the_way() -> None:
    """Keys that are no names are quoted; the path starts where the caller says."""
    with pytest.raises(NotPersistable) as caught:
        to_json({"a b": [{"c": {1, 2}}]}, path="metadata")
    assert caught.value.path == "metadata['a b'][0].c"
    with pytest.raises(NotPersistable) as caught:
        to_json(Old([Request(url="x", words=[1])]))  # type: ignore[list-item] # as a caller may
    assert caught.value.path == "params.requests[0].words[0]"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (cyclic, "no cycles"),
        (lambda: deep(MAX_DEPTH + 1), "levels deep"),
        (lambda: deep(100_000), "levels deep"),
    ],
)
def test_shapes_without_an_end_are_refused(make: Callable[[], Any], reason: str) -> None:
    """Cycles and depth are the caller's error and no crash."""
    with pytest.raises(NotPersistable, match=reason):
        to_json(make())


def test_depth_up_to_the_limit_is_fine() -> None:
    """What is nested as deep as allowed is stored, and shared parts are no cycle."""
    to_json(deep(MAX_DEPTH))
    shared = [1]
    assert to_json([shared, shared]) == [[1], [1]]


def test_what_would_not_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few lists that refer to each other many times are not written out."""
    monkeypatch.setattr("coatcheck.persistable.walk.MAX_VALUES", 1000)
    with pytest.raises(NotPersistable, match="after 1000 other values"):
        to_json(bomb())


def test_reading_what_is_too_deep_is_no_crash() -> None:
    """Depth that came from elsewhere is an error of the params."""
    with pytest.raises(InvalidParams):
        from_json(deep(100_000), Box[list[Any]])


@define(eq=False)
class Unequal:
    """Equal to nothing but itself."""

    a: int = 1


@define
class Picky:
    """Cannot be compared."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    __hash__ = None  # type: ignore[assignment] # nor looked up


def _one_more(value: int) -> int:
    return value + 1


@define
class Odd:
    """Reads one thing and becomes another."""

    a: int = field(converter=_one_more)


@frozen
class Base:
    """A class with children."""


@frozen
class Child(Base):
    """One of them."""


@frozen
class Holder:
    """Declares the parent, holds a child."""

    it: Base


class Hiding(pydantic.BaseModel):
    """A model with more than its fields."""

    a: int = 1
    _more: int = pydantic.PrivateAttr(default=0)


class Broken(pydantic.BaseModel, arbitrary_types_allowed=True):
    """A model of what pydantic cannot write."""

    it: Any


def hiding() -> Hiding:
    """Return a model whose difference cannot be stored."""
    model = Hiding()
    model._more = 1
    return model


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        (Request(url=7), "params.url", "expected str, not int"),  # type: ignore[arg-type] # that is the point
        (Request(url="x", when="soon"), "params.when", "expected datetime"),  # type: ignore[arg-type] # as above
        (Request(url="x", pages=[Page()]), "params.pages", "a list becomes a tuple"),  # type: ignore[arg-type] # as above
        (Request(url="x", words=("a",)), "params.words", "a tuple becomes a list"),
        (Unequal(), "params", "does not equal its own copy"),
        (Picky(), "params", "cannot be compared"),
        (Odd(1), "params.a", "comes back with another value"),
        (Holder(Child()), "params.it", "Child becomes a"),
        (hiding(), "params", "does not equal its own copy"),
        (Broken(it=object()), "params", "cannot be written as JSON by pydantic"),
        (Broken(it=Path("x")), "params.it", "upload the file"),
        (Broken(it={"a": [b"x"]}), "params.it.a[0]", "raw bytes"),
        (Broken(it={1}), "params.it", "no order"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_does_not_come_back_equal_is_refused(value: Any, path: str, reason: str) -> None:
    """The proof fails where the two differ, and says how."""
    with pytest.raises(NotPersistable, match=reason) as caught:
        to_json(value)
    assert caught.value.path == path


def test_without_proof_it_need_not_come_back() -> None:
    """What is only to be looked at may change its type on the way, but not be what JSON cannot hold."""
    value = {"a": (1, timedelta(seconds=2)), "b": Unequal()}
    assert to_json(value, prove=False) == {"a": [1, 2], "b": {"a": 1}}
    with pytest.raises(NotPersistable, match=r"params\.a: .*raw bytes"):
        to_json({"a": b"x"}, prove=False)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({}, "params.url: is required and missing"),
        ({"url": 3}, "params.url: expected str, not int"),
        ({"url": "x", "size": 9}, "params.size: expected Size"),
        ({"url": "x", "zz": 1}, "params: there is no field 'zz'"),
        (
            {"url": "x", "pages": [{"turn": 1}, {"turn": "hunter2"}]},
            "params.pages[1].turn: expected int, not str",
        ),
        ({"url": "x", "pages": "hunter2"}, "params.pages: expected a list, not str"),
        ({"url": "x", "words": {"hunter2": 1}}, "params.words: expected a list, not dict"),
        ({"url": "x", "by_colour": {"hunter2": 1}}, "expected Colour"),
        ({"url": "x", "when": 7}, "params.when: expected datetime in ISO 8601, not int"),
        ({"url": "x", "day": "hunter2"}, "params.day: expected date"),
        ({"url": "x", "wait": "hunter2"}, "params.wait: expected seconds, not str"),
        ({"url": "x", "wait": True}, "params.wait: expected seconds, not bool"),
        ({"url": "x", "key": "hunter2"}, "params.key: expected UUID"),
        ({"url": "x", "key": 7}, "params.key: expected UUID as text, not int"),
        ({"url": "x", "price": "hunter2"}, "params.price: expected Decimal"),
        ({"url": "x", "price": 1.5}, "params.price: expected Decimal as text, not float"),
        ({"url": "x", "count": "7"}, "params.count: expected int, not str"),
        ({"url": "x", "ratio": True}, "params.ratio: expected float, not bool"),
        ({"url": "x", "mode": "hunter2"}, "params.mode: expected Literal"),
        ({"url": "x", "point": 7}, "params.point: expected"),
        (7, "params: has another shape than expected"),
        (["hunter2"], "params: has another shape than expected"),
    ],
    ids=str,
)
def test_what_is_wrong_with_stored_params_is_told(raw: Any, message: str) -> None:
    """Every path that is wrong is named with what was expected there; no value is quoted."""
    with pytest.raises(InvalidParams) as caught:
        from_json(raw, Request)
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value).replace("params.by_colour['hunter2']", "")
    assert caught.value.__cause__ is None


def test_what_pydantic_says_is_told() -> None:
    """A pydantic model's own reasons come with their places, and without the values."""
    with pytest.raises(InvalidParams, match="url: Input should be a valid URL") as caught:
        from_json({"url": "hunter2"}, Model)
    assert "hunter2" not in str(caught.value)
    with pytest.raises(InvalidParams, match="it: "):
        from_json(7, Model)


def test_null_is_only_null() -> None:
    """A field of None takes nothing else."""
    assert from_json(None, type(None)) is None
    with pytest.raises(InvalidParams, match="expected null, not int"):
        from_json(7, type(None))
