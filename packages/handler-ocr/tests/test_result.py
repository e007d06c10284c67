from datetime import UTC, datetime

from coatcheck.persistable import from_json, to_json
from coatcheck_handler_ocr import OcrAsset, OcrBlock, OcrPage, OcrResult


def test_a_result_is_stored_and_read_back() -> None:
    """With its pages, blocks, assets and the time at which they end."""
    result = OcrResult(
        markdown="# T\n\u0000 \U0001f600",
        text="T",
        pages=(
            OcrPage(index=0, width=1.5, blocks=(OcrBlock(kind="title", text="T", box=(0.0, 1.0, 2.0, 3.0)),)),
        ),
        assets=(OcrAsset(type="json", url="https://x/y", expires_at=datetime(2026, 1, 1, tzinfo=UTC)),),
        usage={"price": 0.5},
        warnings=("page 2 is blank",),
    )
    assert from_json(to_json(result), OcrResult) == result
    assert from_json({}, OcrResult) == OcrResult()
