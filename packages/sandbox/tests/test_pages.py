import pytest

from coatcheck_sandbox import UnknownPage, pages


def test_every_page_has_its_text_and_is_small() -> None:
    """The pages can be shipped, and each can be checked against what is on it."""
    assert len(pages.names()) == 6
    assert sum(len(pages.read(name)) for name in pages.names()) < 3_000_000
    assert all(len(pages.truth(name)) > 200 for name in pages.names())
    assert {pages.media_type(name) for name in pages.names()} == {"image/jpeg", "image/png"}


@pytest.mark.parametrize("name", ["absent.png", "letter.txt", "../errors.py", "__init__.py", ""])
def test_what_is_no_page_is_refused(name: str) -> None:
    """Only pages can be read, and the error lists them."""
    with pytest.raises(UnknownPage, match=r"gazette\.jpg") as caught:
        pages.read(name)
    assert caught.value.name == name
