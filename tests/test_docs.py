"""The docs: their code runs, what they list is complete, and their links lead somewhere. See pages.py."""

import ast
import importlib
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

from pages import blocks_of, run_apart, with_code
from workspace import MEMBERS, ROOT

DOCS = ROOT / "docs"
PAGES = sorted(
    page
    for page in (*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *ROOT.glob("packages/*/README.md"))
    if page.name != "CHANGELOG.md"
)
STORE_RULES = [f"S{number}" for number in range(1, 22)]


def name_of(page: Path) -> str:
    """Return what a page is called in the names of tests."""
    return page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name


# ------------------------------------------------------------------ running the pages


@pytest.fixture(scope="module")
def sandbox_url() -> Iterator[str]:
    """Run a sandbox that needs no OCR engine."""
    sandbox = importlib.import_module("coatcheck_sandbox")
    with sandbox.SandboxServer(recognizer=sandbox.describe, filmer=sandbox.sketch) as server:
        yield server.url


def takes_long(page: Path) -> bool:
    """Whether a page runs commands, such as the kit, or is that of a provider, of which there are many."""
    return page.parent.name == "providers" or any(
        block.language == "console" and block.runs for block in blocks_of(page.read_text("utf-8"))
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=name_of(page), marks=[pytest.mark.slow] if takes_long(page) else [])
        for page in with_code(PAGES)
    ],
)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, sandbox_url: str) -> None:
    """What a reader copies from the docs works, and prints what the docs say."""
    done = run_apart(page, tmp_path, sandbox_url)
    assert done.returncode == 0, f"{name_of(page)}\n{done.stdout}\n{done.stderr}"


def test_the_guides_have_code() -> None:
    """The guides that tell how something is done show it."""
    wanted = (
        "submitting", "handlers", "workers", "unknown", "gates", "stores", "plugins", "testing", "selectors", "retries",
        "admission",
        "providers/gitee",
    )  # fmt: skip
    runnable = with_code(PAGES)
    assert [each for each in wanted if DOCS / f"{each}.md" not in runnable] == []


def test_code_that_is_not_run_says_why() -> None:
    """A block is left out for a reason that a reader can check."""
    silent = [
        f"{name_of(page)}:{block.line}"
        for page in PAGES
        for block in blocks_of(page.read_text("utf-8"))
        if block.left_out is not None and len(block.left_out) < 10
    ]
    assert silent == []


def test_every_python_block_is_seen() -> None:
    """No block escapes the test by the way it is fenced."""
    missed = []
    for page in PAGES:
        text = page.read_text("utf-8")
        fences = len(re.findall(r"^\s*(?:```|~~~)\s*(?:python|py|pycon|python3)\b", text, re.MULTILINE))
        if fences != sum(block.language == "python" for block in blocks_of(text)):
            missed.append(name_of(page))
    assert missed == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("```python\nprint('begun')\nraise KeyError('broken')\n```\n", "line 3"),
        ("```python\nprint('one')  # prints: two\n```\n", "does not print 'two'"),
        ("```python\nprint('b')\nprint('a')\n# prints: a\n# prints: b\n```\n", "does not print 'b'"),
        ("```python\nimport warnings\nwarnings.warn('old', DeprecationWarning)\n```\n", "DeprecationWarning"),
        ("<!-- run-with: one => two -->\n```python\nprint('three')\n```\n", "nothing to replace"),
        ("```python\nimport asyncio\nawait asyncio.sleep(0)\n1 / 0\n```\n", "ZeroDivisionError"),
    ],
)
def test_a_page_that_is_wrong_fails(text: str, told: str, tmp_path: Path) -> None:
    """The test of the pages can fail, and names the place."""
    page = tmp_path / "page.md"
    page.write_text(text, "utf-8")
    done = run_apart(page, tmp_path, "http://127.0.0.1:1")
    assert done.returncode != 0
    assert told in done.stderr


def test_a_page_that_is_right_passes(tmp_path: Path) -> None:
    """Blocks share a namespace, may await, are replaced where they ask for it, and left out where they say so."""
    page = tmp_path / "page.md"
    text = (
        "```python\nimport asyncio\nnumber = 20\n```\n\n"
        "<!-- run-with: real.example => SANDBOX_URL -->\n"
        "```python\nawait asyncio.sleep(0)\nprint(number + 1, 'real.example')  # prints: 21 http://127.0.0.1:1\n```\n\n"
        "<!-- no-run: it is wrong on purpose -->\n```python\n1 / 0\n```\n"
    )
    page.write_text(text, "utf-8")
    done = run_apart(page, tmp_path, "http://127.0.0.1:1")
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------ completeness


def text_of(page: str) -> str:
    """Return the text of a page of the docs."""
    return (DOCS / page).read_text("utf-8")


def mentioned(text: str) -> set[str]:
    """Return what a page has in code: whole spans, the words in them, and the words in its blocks."""
    spans = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
    blocks = re.findall(r"^```.*?^```$", text, re.MULTILINE | re.DOTALL)
    words = {word for span in (*spans, *blocks) for word in re.findall(r"[\w.-]+", span)}
    return {*spans, *words}


def fields(reference: str) -> list[str]:
    """Return the fields that the constructor of a data class takes."""
    return [each.alias or each.name for each in attrs.fields(resolve(reference)) if each.init]


def members(reference: str) -> list[str]:
    """Return the values of an enumeration."""
    return [each.value for each in resolve(reference)]


def public(module: str) -> list[str]:
    """Return the public names of a module."""
    return list(importlib.import_module(module).__all__)


def resolve(reference: str) -> Any:
    """Return what ``module:name`` names."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)


def methods(reference: str) -> list[str]:
    """Return the public methods and properties that a class itself defines."""
    return [name for name in vars(resolve(reference)) if not name.startswith("_")]


def offered(hook: str) -> list[str]:
    """Return the keys that a plugin's hook offers."""
    return [each.key for each in resolve(hook)()]


def fault_kinds(module: str) -> list[str]:
    """Return the sandbox's kinds of faults, as they are written in code."""
    return [each.__name__ for each in importlib.import_module(module).KINDS.values()]


@pytest.mark.parametrize(
    ("page", "listing", "of"),
    [
        ("errors.md", public, "coatcheck.errors"),
        ("errors.md", public, "coatcheck_http.errors"),
        ("errors.md", members, "coatcheck.task:ErrorCode"),
        ("workers.md", fields, "coatcheck.worker:WorkerSettings"),
        ("submitting.md", fields, "coatcheck.manager:SubmitOptions"),
        ("submitting.md", methods, "coatcheck.manager:Manager"),
        ("concepts.md", members, "coatcheck.task:Status"),
        ("submitting.md", members, "coatcheck.task:CancelOutcome"),
        ("handlers.md", members, "coatcheck.results:Verdict"),
        ("handlers.md", members, "coatcheck.handler:Capability"),
        ("handlers.md", methods, "coatcheck.handler:Handler"),
        ("handlers.md", fields, "coatcheck.handler:SubmitContext"),
        ("handlers.md", fields, "coatcheck_http.settings:HttpSettings"),
        ("handlers.md", methods, "coatcheck_http.adapter:HttpAdapter"),
        ("conformance.md", public, "coatcheck_conformance"),
        ("write-a-store.md", fields, "coatcheck_conformance:StoreSpec"),
        ("write-a-handler.md", fields, "coatcheck_conformance:HandlerSpec"),
        ("write-a-handler.md", fields, "coatcheck_conformance:Script"),
        ("write-a-handler.md", fields, "coatcheck_conformance:PluginSpec"),
        ("stores.md", members, "coatcheck.store:Capability"),
        ("stores.md", methods, "coatcheck.store:Store"),
        ("workers.md", fields, "coatcheck.retry:ExponentialRetry"),
        ("selectors.md", offered, "coatcheck_selectors.plugin:coatcheck_selectors"),
        ("selectors.md", methods, "coatcheck.selector:Standing"),
        ("selectors.md", fields, "coatcheck_selectors.health:Healthy"),
        ("retries.md", offered, "coatcheck_retries.plugin:coatcheck_retry_policies"),
        ("retries.md", fields, "coatcheck_retries.learning:LearnedRetry"),
        ("retries.md", fields, "coatcheck_retries.paces:FullJitterRetry"),
        ("admission.md", offered, "coatcheck_admissions.plugin:coatcheck_admission_policies"),
        ("admission.md", fields, "coatcheck_admissions.breaker:CircuitBreaker"),
        ("admission.md", fields, "coatcheck_admissions.adaptive:AdaptiveRate"),
        ("admission.md", fields, "coatcheck_admissions.budget:DailyBudget"),
        ("admission.md", fields, "coatcheck_admissions.hours:TimeWindow"),
        ("admission.md", fields, "coatcheck_admissions.shares:FairShare"),
        ("plugins.md", members, "coatcheck.plugins:PluginState"),
        ("plugins.md", fields, "coatcheck.hooks:HandlerDescriptor"),
        ("plugins.md", fields, "coatcheck.hooks:StoreDescriptor"),
        ("testing.md", public, "coatcheck.testing"),
        ("testing.md", fault_kinds, "coatcheck_sandbox.faults"),
        ("providers/gitee.md", fields, "coatcheck_handler_ocr.gitee:GiteeOcrSettings"),
        ("providers/gitee.md", fields, "coatcheck_handler_ocr.request:OcrRequest"),
        ("providers/gitee.md", fields, "coatcheck_handler_ocr.result:OcrResult"),
    ],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_a_page_names_all_that_there_is(page: str, listing: Any, of: str) -> None:
    """What is added to the public API is added to its page."""
    known = mentioned(text_of(page))
    assert [name for name in listing(of) if name not in known] == []


@pytest.mark.parametrize(
    ("page", "of"),
    [
        ("workers.md", "coatcheck.worker:WorkerSettings"),
        ("submitting.md", "coatcheck.manager:SubmitOptions"),
        ("workers.md", "coatcheck.retry:ExponentialRetry"),
        ("stores.md", "coatcheck_store_sql.settings:SqlSettings"),
        ("redis.md", "coatcheck_store_redis.settings:RedisSettings"),
    ],
)
def test_tables_of_settings_tell_the_true_defaults(page: str, of: str) -> None:
    """A default that changes is changed in the docs."""
    table = dict(re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", text_of(page), re.MULTILINE))
    wrong = {}
    for each in attrs.fields(resolve(of)):
        if not each.init:
            continue
        default = each.default.factory() if isinstance(each.default, attrs.Factory) else each.default  # type: ignore[arg-type] # attrs calls it a function
        shown = table.get(each.name, "nothing")
        if shown == "nothing" or eval(shown, {"timedelta": timedelta}) != default:
            wrong[each.name] = (shown, default)
    assert wrong == {}


def signature_of(node: ast.FunctionDef) -> str:
    """Return the first line of a function, as it stands in the source."""
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"def {node.name}({ast.unparse(node.args)}){returned}"


def test_every_hook_is_shown_with_its_signature() -> None:
    """A plugin's author copies hooks from the docs, letter by letter."""
    hooks = importlib.import_module("coatcheck.hooks")
    tree = ast.parse(Path(str(hooks.__file__)).read_text("utf-8"))
    wanted = [
        signature_of(node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("coatcheck_")
    ]
    assert len(wanted) == len([name for name in hooks.__all__ if name.startswith("coatcheck_")]) > 0
    shown = text_of("plugins.md")
    assert [each for each in wanted if each not in shown] == []


def tree_of(root: type, depth: int = 0) -> Iterator[tuple[int, str]]:
    """Yield the classes below an error with their depth, sorted by name."""
    yield depth, root.__name__
    kinds: list[type] = root.__subclasses__()
    for kind in sorted(kinds, key=lambda each: each.__name__):
        if kind.__module__ == root.__module__:
            yield from tree_of(kind, depth + 1)


def test_the_tree_of_errors_is_the_true_one() -> None:
    """Each error stands in the drawn tree below what it derives from."""
    errors = importlib.import_module("coatcheck.errors")
    drawn = re.search(r"^```text\n(CoatcheckError\n.*?)^```", text_of("errors.md"), re.MULTILINE | re.DOTALL)
    assert drawn is not None
    found = {}
    above = [""]
    for line in drawn[1].splitlines():
        name = re.search(r"[A-Z]\w+", line)
        assert name is not None, line
        depth = name.start() // 3
        del above[depth + 1 :]
        above.append(name[0])
        found[name[0]] = above[depth]
    true = {name: getattr(errors, name).__bases__[0].__name__ for name in errors.__all__}
    assert found == {**true, "CoatcheckError": ""}
    assert len(list(tree_of(errors.CoatcheckError))) == len(true)


def test_every_store_rule_is_explained() -> None:
    """S1 to S21, which the conformance kit quotes, can be looked up, and are all that there are."""
    rows = re.findall(r"^\| (S\d+) \|", text_of("stores.md"), re.MULTILINE)
    assert rows == STORE_RULES
    source = Path(str(importlib.import_module("coatcheck.store").__file__)).read_text("utf-8")
    assert set(re.findall(r"\bS\d+\b", source)) <= set(STORE_RULES)


# ------------------------------------------------------------------ links, decisions


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """Return the relative links of a page that lead nowhere."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors_of(file)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """Relative links name files, and headings, that exist."""
    assert broken_links(page) == []


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    """The test of the links can fail."""
    page = tmp_path / "page.md"
    page.write_text(
        "# One\n\n## Two, three\n\n[a](#two-three) [b](#four) [c](other.md) [d](page.md#one)\n", "utf-8"
    )
    assert broken_links(page) == ["#four", "other.md"]


def test_every_page_can_be_reached() -> None:
    """The map names every page of the docs, or a map of a folder does."""
    index = DOCS / "index.md"
    linked = {
        (index.parent / link.partition("#")[0]).resolve()
        for link in re.findall(r"\]\(([^)\s]+)\)", index.read_text("utf-8"))
    }
    of_maps = {
        (DOCS / folder / link).resolve()
        for folder in ("decisions", "providers")
        for link in re.findall(r"\]\(([^)\s]+)\)", text_of(f"{folder}/README.md"))
    }
    missing = {page for page in DOCS.rglob("*.md") if page != index} - linked - of_maps
    assert sorted(map(name_of, missing)) == []


def test_decisions_are_numbered_and_complete() -> None:
    """Each decision has its number, in the name and in the title, and says context, decision, why, consequences."""
    files = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    for number, file in enumerate(files, 1):
        text = file.read_text("utf-8")
        assert file.name.startswith(f"{number:04}-"), file.name
        assert text.startswith(f"# {number}. "), file.name
        parts = re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE)
        assert parts == ["Context", "Decision", "Why", "Consequences"], file.name


def test_pages_show_no_machine() -> None:
    """The docs have no path of the machine on which they were written."""
    shown = [
        name_of(page) for page in PAGES if re.search(r"/(?:work|home|root|Users)/", page.read_text("utf-8"))
    ]
    assert shown == []


def test_every_distribution_is_on_the_map() -> None:
    """The map tells what to install for what."""
    known = mentioned(text_of("index.md"))
    assert [member.name for member in MEMBERS if member.name not in known] == []
