from pathlib import Path

import pytest

from coatcheck.errors import InvalidParams
from coatcheck.persistable import from_json, to_json
from coatcheck.task import JSON
from coatcheck_handler_ocr import OcrRequest, OutputFormat
from coatcheck_handler_ocr.request import object_option

URL = "https://files.example.com/report.pdf"


def test_a_request_is_stored_and_read_back() -> None:
    """Every field survives the store."""
    request = OcrRequest(
        url=URL,
        file_name="Bericht 1.pdf",
        pages="1-10,15",
        languages=["ch", "en"],
        outputs=["markdown", OutputFormat.JSON],
        tables=True,
        formulas=False,
        model="m",
        options={"a": [1, None, {"b": "c"}]},
    )
    assert request.languages == ("ch", "en")
    assert from_json(to_json(request), OcrRequest) == request
    assert from_json({"url": URL}, OcrRequest) == OcrRequest(url=URL)


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "/tmp/a.pdf"},
        {"url": "a.pdf"},
        {"url": "file:///tmp/a.pdf"},
        {"url": "data:application/pdf;base64,AAAA"},
        {"url": "JVBERi0xLjcK" * 200},
        {"url": Path("a.pdf")},
        {"url": b"%PDF"},
        {"options": {"image": "data:image/png;base64,AAAA"}},
        {"options": {"pages": [{"file": b"x"}]}},
    ],
)
def test_local_things_are_refused_with_what_to_do(wrong: dict[str, object]) -> None:
    """Before anything is written, and before anything is sent."""
    with pytest.raises(InvalidParams, match="upload it and submit a URL"):
        OcrRequest(**{"url": URL, **wrong})  # type: ignore[arg-type] # on purpose


@pytest.mark.parametrize(
    "wrong",
    [
        {"pages": ""},
        {"pages": "0"},
        {"pages": "1-"},
        {"pages": "one"},
        {"pages": 7},
        {"url": 7},
        {"languages": 5},
        {"model": 3},
        {"file_name": 3},
        {"tables": "yes"},
        {"options": 3},
        {"languages": "en"},
        {"outputs": "markdown"},
        {"outputs": ["pdf"]},
        {"model": " "},
        {"file_name": ""},
        {"file_name": "../a.pdf"},
        {"file_name": "a\\b.pdf"},
    ],
)
def test_fields_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    """The message names the field."""
    with pytest.raises(InvalidParams):
        OcrRequest(**{"url": URL, **wrong})  # type: ignore[arg-type] # on purpose


def test_options_that_a_handler_adds_to_are_objects() -> None:
    """Anything else is refused by name, rather than replaced."""
    options: dict[str, JSON] = {"a": {"b": 1}, "none": None, "text": "c"}
    assert object_option(options, "a") == {"b": 1}
    assert object_option(options, "none") == object_option(options, "missing") == {}
    with pytest.raises(InvalidParams, match=r"options\.a\.text must be an object"):
        object_option(options, "text", within="options.a")
