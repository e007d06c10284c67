import pytest

from coatcheck.errors import ConfigurationError, InvalidParams
from coatcheck.task import JSON
from coatcheck_http import FilePart, HttpRequest, RequestTemplate, check_paths, split_paths

VALUES: dict[str, JSON] = {
    "id": "j/1",
    "url": "https://x/{a}",
    "pages": None,
    "languages": ["en", "de"],
    "none": [],
    "tables": False,
    "options": {"dpi": 300, "deep": {"a": [1]}},
}


@pytest.mark.parametrize(
    ("template", "rendered"),
    [
        ("{url}", "https://x/{a}"),
        ("{tables}", False),
        ("{languages}", ["en", "de"]),
        ("{options.dpi}", 300),
        ("{options}", {"dpi": 300, "deep": {"a": [1]}}),
        ("at {options.dpi} dpi, {languages}", "at 300 dpi, en,de"),
        ("{tables}/{pages}/{options.deep}", 'false//{"a": [1]}'),
        ("{{id}} is {id}", "{id} is j/1"),
        ({"a": "{pages}", "b": None, "c": {"d": "{none}"}}, {"b": None, "c": {}}),
        (["{pages}", "{id}", 7, ["{none}"]], ["j/1", 7, []]),
        ({"empty": "{pages}!"}, {"empty": "!"}),
    ],
)
def test_values_take_their_places(template: JSON, rendered: JSON) -> None:
    """With their types where a placeholder stands alone; what is not there is left out."""
    assert RequestTemplate(path="/a", json=template).render(VALUES).json == rendered


def test_every_part_of_a_request_is_rendered() -> None:
    """Path segments are quoted; a query parameter or header for what is not there is left out."""
    template = RequestTemplate(
        path="/jobs/{id}/pages",
        method="put",
        query={"lang": "{languages}", "pages": "{pages}", "v": "1"},
        headers={"x-url": "{url}", "x-pages": "{pages}"},
        form={"dpi": "{options.dpi}", "tables": "{tables}", "pages": "{pages}"},
    )
    file = FilePart(name="f", file_name="a.pdf", content=b"%PDF")
    assert template.render(VALUES, file=file) == HttpRequest(
        method="PUT",
        url="/jobs/j%2F1/pages",
        query={"lang": "en,de", "v": "1"},
        headers={"x-url": "https://x/{a}"},
        form={"dpi": "300", "tables": "false"},
        files=(file,),
    )


def test_a_value_that_the_path_needs_must_be_there() -> None:
    """Another path would be another request."""
    with pytest.raises(InvalidParams, match="'pages'"):
        RequestTemplate(path="/a/{pages}").render(VALUES)
    with pytest.raises(InvalidParams, match="path"):
        RequestTemplate(path="/a/{id}").render({"id": ".."})


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            RequestTemplate(path="/a/{ur}"),
            r"submit\.path has the placeholder \{ur\}; possible are id, options",
        ),
        (RequestTemplate(path="/a", json={"b": [{"c": "{x.y}"}]}), r"submit\.json\.b\.0\.c has .*\{x\.y\}"),
        (RequestTemplate(path="/a", query={"q": "{"}), r"submit\.query\.q has a brace"),
        (RequestTemplate(path="/a", headers={"h": "a}"}), r"submit\.headers\.h has a brace"),
        (RequestTemplate(path="/a", form={"f": "{ id }"}), r"submit\.form\.f has a brace"),
        (RequestTemplate(path="a"), r"submit\.path must .* begin with '/', not 'a'"),
        (RequestTemplate(path="https://x/a"), r"submit\.path must be below the base URL"),
        (RequestTemplate(path="/a", method="FETCH"), r"submit\.method is 'FETCH'"),
        (RequestTemplate(path="/a", json={}, form={"f": "1"}), "submit has both json and a form"),
        (RequestTemplate(path="/a", json={}, file_field="f"), "submit has both json and a form"),
    ],
)
def test_what_can_never_become_a_request_is_refused(template: RequestTemplate, message: str) -> None:
    """When it is loaded, by the place where it stands."""
    with pytest.raises(ConfigurationError, match=message):
        template.check(("id", "options"), where="submit")


def test_a_sound_template_passes_and_tells_what_it_uses() -> None:
    """By the first parts of its placeholders."""
    template = RequestTemplate(path="/a/{id}", json={"a": "{options.b}", "b": "{{c}}", "d": [1, None]})
    template.check(("id", "options"), where="submit")
    assert template.used() == {"id", "options"}


@pytest.mark.parametrize("text", [None, "id", "data.items.0.id", "a | b.c|d", "$.weird-name", "text/plain"])
def test_paths_are_taken(text: str | None) -> None:
    """Names with dots between them, and choices of such."""
    check_paths(text, where="id")


@pytest.mark.parametrize("text", ["", " ", "a..b", ".a", "a.", "a |", "a b", "|"])
def test_what_is_no_path_is_refused(text: str) -> None:
    """With the place where it stands."""
    with pytest.raises(ConfigurationError, match=r"^result\.text: '.*' is no path"):
        check_paths(text, where="result.text")


def test_paths_are_split() -> None:
    """To be tried one after the other."""
    assert split_paths("a | b.c") == ("a", "b.c")
    assert split_paths(None) == ()
