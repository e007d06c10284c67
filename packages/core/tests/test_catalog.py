"""The catalog: what is offered, what is asked for, and what is said if it cannot be had."""

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from coatcheck import catalog as catalog_room
from coatcheck.catalog import Catalog, create_store, discover
from coatcheck.errors import ConfigurationError, PluginError
from coatcheck.gates import Gate, Rate, StandardAdmission
from coatcheck.handler import Handler, SubmitContext
from coatcheck.hooks import Kind
from coatcheck.memory import MemoryStore
from coatcheck.plugins import PluginState
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.retry import ExponentialRetry
from coatcheck.secret import Secret
from coatcheck.selector import Selection
from coatcheck.task import QueryParams

if TYPE_CHECKING:
    from conftest import Site

SECRET_URL = "acme://u:hun%20ter2@h/db?password=swordfish"
ACME = """
from collections.abc import Mapping
from attrs import frozen
from coatcheck.errors import InvalidParams
from coatcheck.gates import AdmissionPolicy, Gates
from coatcheck.handler import Handler
from coatcheck.memory import MemoryStore
from coatcheck.results import QueryResult, SubmitResult
from coatcheck.retry import ExponentialRetry, RetryPolicy
from coatcheck.secret import Secret
from coatcheck.selector import Selector

MADE = []

@frozen
class Settings:
    size: int = 1
    password: Secret | None = None

@frozen
class Account:
    api_key: Secret

class Acme(Handler[dict]):
    def __init__(self, *, key, accounts, settings):
        self.key = self.provider_key = key
        self.accounts, self.settings = accounts, settings
    async def submit(self, params, context):
        return SubmitResult.accepted("x")
    async def query(self, params, context):
        return QueryResult.running()

class Store(MemoryStore):
    def __init__(self, url, settings=None):
        super().__init__()
        self.made_of = (url, settings)

def broken(url, settings=None):
    raise RuntimeError(f"cannot parse {url}")

def refusing(url, settings=None):
    from coatcheck.errors import ConfigurationError
    raise ConfigurationError(f"not this: {url}")

def wrong(*args, **keywords):
    return 7

def make_selector(settings=None):
    async def select(selection):
        return selection.candidates[settings.size if settings else 0]
    return select

async def first(selection):
    return selection.candidates[0]

@frozen
class Around:
    inner: Selector
    others: Mapping[str, Selector] = {}
    retry: RetryPolicy | None = None
    async def __call__(self, selection):
        return await self.inner(selection)

@frozen
class Paced:
    retry: RetryPolicy | None = None

@frozen
class Strict:
    size: int = 1
    def __attrs_post_init__(self):
        if self.size < 1:
            raise InvalidParams(f"size is at least 1, not {self.size}")
    async def __call__(self, selection):
        return selection.candidates[self.size]

class Chosen:
    async def __call__(self, selection):
        return "chosen"

CHOSEN = Chosen()
RETRY = ExponentialRetry(jitter=0)

class Admission(AdmissionPolicy):
    def __init__(self, word="x"):
        self.word = word
    def gates_for(self, draft):
        return Gates()

HANDLER = Acme(key="acme:made", accounts=None, settings=None)
OBSERVER_WITHOUT_HOOK = object()

class Observer:
    def coatcheck_tasks_changed(self, changes):
        MADE.append(changes)

OBSERVER = Observer()

from coatcheck.hooks import StoreDescriptor
DESCRIPTOR = StoreDescriptor(key="described", factory="acme:Store", settings="acme:Settings")
"""


@pytest.fixture
def acme(site: "Site") -> "Site":
    """Have a module `acme` with everything that can be made."""
    site.write("acme", ACME)
    return site


def offered(site: "Site", kind: str, descriptor: str, **options: Any) -> Catalog:
    """Return a catalog with one offer of a plugin."""
    site.offer("acme-plugin", kind, descriptor)
    return discover(**options)


# ---------------------------------------------------------------- built in


@pytest.mark.usefixtures("site")
def test_core_comes_through_the_same_door() -> None:
    """The memory store, the exponential retry and the standard admission are offers like any others."""
    catalog = discover(allow=[])
    assert [(row.distribution, row.kind, row.key, row.state) for row in catalog.listing()] == [
        ("coatcheck", "retry", "exponential", "available"),
        ("coatcheck", "store", "memory", "available"),
        ("coatcheck", "admission", "standard", "available"),
    ]
    assert isinstance(catalog.create_store("memory://"), MemoryStore)
    assert catalog.create_retry_policy("exponential", {"jitter": 0, "initial": "2s"}) == ExponentialRetry(
        jitter=0, initial=timedelta(seconds=2)
    )
    assert catalog.create_admission_policy(
        "standard", {"limits": [{"name": "provider/p", "concurrency": 3, "rate": "5/s"}]}
    ) == StandardAdmission(limits=[Gate(name="provider/p", concurrency=3, rate=Rate(5))])


@pytest.mark.usefixtures("site")
def test_a_store_of_a_url_needs_no_catalog() -> None:
    """`create_store` is synchronous, does no I/O, and gives a closed store."""
    assert isinstance(create_store("memory://"), MemoryStore)


# ---------------------------------------------------------------- stores


def test_query_string_and_keywords_are_the_same_settings(acme: "Site") -> None:
    """Settings are typed by the plugin's class, wherever they were written; the URL comes without them."""
    catalog = offered(
        acme, "Store", 'key="acme", factory="acme:Store", settings="acme:Settings", schemes=("acme", "acmes")'
    )
    for store in (
        catalog.create_store("acme://u:p@h/db?size=3"),
        catalog.create_store("ACME://u:p@h/db", size=3),
    ):
        url, settings = store.made_of  # type: ignore[attr-defined] # of the test's store
        assert (url, settings.size) == ("acme://u:p@h/db", 3)
    assert catalog.create_store("acmes://").made_of[1].size == 1  # type: ignore[attr-defined] # as above
    with pytest.raises(ConfigurationError, match="size: given in the URL and as a keyword"):
        catalog.create_store("acme://?size=3", size=3)
    with pytest.raises(
        ConfigurationError, match=r"store 'acme' of acme-plugin 1\.0 has no settings 'sise'; did you"
    ):
        catalog.create_store("acme://?sise=3")


@pytest.mark.usefixtures("acme")
def test_a_store_may_be_named_by_its_factory() -> None:
    """A ``module:attribute`` goes before any plugin; it may name a factory or a descriptor."""
    catalog = discover()
    plain = catalog.create_store("other://x", use="acme:Store")
    assert plain.made_of == ("other://x", None)  # type: ignore[attr-defined] # of the test's store
    given = catalog.create_store("other://x?a=1", use="acme:Store", b=2)
    assert given.made_of == ("other://x", {"a": "1", "b": 2})  # type: ignore[attr-defined] # as above
    described = catalog.create_store("other://x?size=4", use="acme:DESCRIPTOR")
    assert described.made_of[1].size == 4  # type: ignore[attr-defined] # as above
    with pytest.raises(PluginError, match="'acme:missing' cannot be imported: AttributeError"):
        catalog.create_store("other://x", use="acme:missing")


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("broken", "RuntimeError"),
        ("refusing", "ConfigurationError"),
        ("wrong", "made a int, which is no Store"),
    ],
)
def test_a_store_that_cannot_be_made_shows_no_password(acme: "Site", factory: str, message: str) -> None:
    """What a factory raises, or returns instead of a store, is told without what is secret in the URL."""
    catalog = offered(acme, "Store", f'key="acme", factory="acme:{factory}", settings="acme:Settings"')
    with pytest.raises(ConfigurationError, match=message) as caught:
        catalog.create_store(SECRET_URL)
    shown = "".join(traceback.format_exception(caught.value))
    assert not [secret for secret in ("hun%20ter2", "hun ter2", "swordfish") if secret in shown]
    with pytest.raises(ConfigurationError) as caught:
        catalog.create_store("x://u@h", use=f"acme:{factory}")
    assert factory == "wrong" or "x://u@h" in str(caught.value)


def test_a_store_without_settings_takes_none(acme: "Site") -> None:
    """Settings that nobody declares are an error, not ignored."""
    catalog = offered(acme, "Store", 'key="acme", factory="acme:Store"')
    assert catalog.create_store("acme://").made_of == ("acme://", None)  # type: ignore[attr-defined] # the test's
    with pytest.raises(ConfigurationError, match="takes no settings; leave out 'size'"):
        catalog.create_store("acme://?size=3")


# ---------------------------------------------------------------- handlers


class Own(Handler[dict]):  # type: ignore[type-arg] # no matter
    """A handler that code passes."""

    key = "own"

    async def submit(self, params: Any, context: SubmitContext) -> SubmitResult:
        """Accept."""
        return SubmitResult.accepted("x")

    async def query(self, params: QueryParams, context: Any) -> QueryResult:
        """Say that it runs."""
        return QueryResult.running()


ACME_HANDLER = 'key="acme:docs", factory="acme:Acme", settings="acme:Settings", account="acme:Account"'


def test_a_handler_is_made_of_accounts_and_settings(acme: "Site", monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin's key says what to make, the handler's key how it is persisted; no credential is read."""
    monkeypatch.delenv("ACME_KEY", raising=False)
    catalog = offered(acme, "Handler", ACME_HANDLER)
    handler: Any = catalog.create_handler(
        "acme:eu",
        use="acme:docs",
        accounts={"default": {"api_key": {"env": "ACME_KEY"}}, "cn": "an object of the caller's"},
        settings={"size": "2"},
    )
    assert handler.key == "acme:eu"
    assert handler.accounts["default"].api_key == Secret.from_env("ACME_KEY")
    assert handler.accounts["cn"] == "an object of the caller's"
    assert handler.settings.size == 2
    bare: Any = catalog.create_handler("acme:docs")
    assert (bare.key, bare.accounts, bare.settings.size) == ("acme:docs", None, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"accounts": {"cn": {"api_kee": "hunter2"}}},
            "account 'cn', has no credential 'api_kee'; did you mean",
        ),
        ({"accounts": {"cn": {"api_key": 7}}}, r"credential\.api_key: expected a credential"),
        ({"settings": {"size": "hunter2"}}, r"settings\.size: expected int"),
        ({"use": "acme:nothing"}, "cannot be imported"),
        ({"use": "acme:wrong"}, "made a int, which is no Handler"),
        ({"use": "acme:HANDLER"}, "is asked for as 'acme:docs', but its key is 'acme:made'"),
        ({"use": "acme:HANDLER", "settings": {"a": 1}}, "leave out settings and accounts"),
        ({"use": Own()}, "is asked for as 'acme:docs', but its key is 'own'"),
        ({"use": 7}, "7 is no Handler, and no name of one"),
    ],
)
def test_what_is_wrong_with_a_handler_is_told(acme: "Site", options: dict[str, Any], message: str) -> None:
    """Accounts and settings that do not fit, and what is no handler, are errors that name the culprit."""
    catalog = offered(acme, "Handler", ACME_HANDLER)
    with pytest.raises(ConfigurationError, match=message) as caught:
        catalog.create_handler("acme:docs", **options)
    assert "hunter2" not in str(caught.value)


def test_a_handler_without_accounts_takes_none(acme: "Site") -> None:
    """Credentials that nobody declares are an error, not ignored."""
    catalog = offered(acme, "Handler", 'key="acme:docs", factory="acme:Acme"')
    assert catalog.create_handler("acme:docs").key == "acme:docs"
    with pytest.raises(ConfigurationError, match="takes no accounts"):
        catalog.create_handler("acme:docs", accounts={"default": {}})


@pytest.mark.usefixtures("acme")
def test_an_object_goes_before_a_reference_and_that_before_a_key() -> None:
    """A handler from code is used as it is; a ``module:attribute`` may be a class or a handler."""
    catalog = discover()
    own = Own()
    assert catalog.create_handler("own", use=own) is own
    made: Any = catalog.create_handler("acme:x", use="acme:Acme", accounts={"default": 1}, settings={"a": 1})
    assert (made.key, made.accounts, made.settings) == ("acme:x", {"default": 1}, {"a": 1})
    assert catalog.create_handler("acme:made", use="acme:HANDLER").key == "acme:made"


def test_an_offered_key_is_no_reference(acme: "Site") -> None:
    """A key with a colon that a plugin offers is never imported as a module."""
    acme.write("trap", "raise ValueError('imported')")
    catalog = offered(acme, "Handler", 'key="trap:key", factory="acme:Acme"')
    assert catalog.create_handler("trap:key").key == "trap:key"
    assert "trap" not in sys.modules


# ---------------------------------------------------------------- policies, selectors, observers


async def test_a_selector_is_made_or_named(acme: "Site") -> None:
    """A selector comes from code, from a reference to it or its factory, or from a plugin."""
    catalog = offered(acme, "Selector", 'key="nth", factory="acme:make_selector", settings="acme:Settings"')
    selection = Selection(params=None, options={}, candidates=("a", "b"))

    async def own(_selection: Selection) -> str:
        return "own"

    assert catalog.create_selector(own) is own
    assert await catalog.create_selector("nth")(selection) == "b"
    assert await catalog.create_selector("nth", {"size": 0})(selection) == "a"
    assert await catalog.create_selector("acme:make_selector")(selection) == "a"
    assert await catalog.create_selector("acme:first")(selection) == "a"
    assert await catalog.create_selector("acme:CHOSEN")(selection) == "chosen"
    assert await catalog.create_selector("acme:Chosen")(selection) == "chosen"
    with pytest.raises(PluginError, match="made a int, which is no Callable"):
        catalog.create_selector("acme:wrong")
    with pytest.raises(ConfigurationError, match="is a finished Callable, which takes no settings"):
        catalog.create_selector("acme:first", {"size": 0})
    with pytest.raises(ConfigurationError, match="leave out settings"):
        catalog.create_selector(own, {"size": 0})


async def test_a_selector_within_another_is_made_or_named(acme: "Site") -> None:
    """What stands within settings is named as anything is: a name, a table with the name as `use`, or an object."""
    catalog = offered(acme, "Selector", 'key="nth", factory="acme:make_selector", settings="acme:Settings"')
    selection = Selection(params=None, options={}, candidates=("a", "b"))

    async def own(_selection: Selection) -> str:
        return "own"

    for inner, answer in (
        ("nth", "b"),
        ({"use": "nth", "size": 0}, "a"),
        ("acme:first", "a"),
        (own, "own"),
        ({"use": "acme:Around", "inner": {"use": "acme:Around", "inner": "nth"}}, "b"),
    ):
        made: Any = catalog.create_selector(
            "acme:Around", {"inner": inner, "others": {"x": "acme:first"}, "retry": "exponential"}
        )
        assert await made(selection) == answer
        assert await made.others["x"](selection) == "a"
        assert made.retry == ExponentialRetry()


@pytest.mark.parametrize(
    ("inner", "told"),
    [
        (
            "nht",
            "settings.inner: expected something else: nothing installed offers selector 'nht'; did you mean 'nth'",
        ),
        ({"use": "nth", "sise": 0}, "has no settings 'sise'; did you mean 'size'"),
        ({"size": 0}, "a selector is a name, or a table with the name as `use`"),
        (7, "7 is no Callable, and no name of one"),
    ],
)
def test_what_is_wrong_within_is_told(acme: "Site", inner: object, told: str) -> None:
    """The message leads to the part."""
    catalog = offered(acme, "Selector", 'key="nth", factory="acme:make_selector", settings="acme:Settings"')
    with pytest.raises(ConfigurationError, match="settings.inner: ") as caught:
        catalog.create_selector("acme:Around", {"inner": inner})
    assert told in str(caught.value)


def test_a_handler_may_hold_a_policy(acme: "Site") -> None:
    """A handler's settings name its retry policy as an app's configuration does."""
    catalog = offered(acme, "Handler", 'key="doc:x", factory="acme:Acme", settings="acme:Paced"')
    made: Any = catalog.create_handler("doc:x", settings={"retry": {"use": "exponential", "initial": "2s"}})
    assert made.settings.retry == ExponentialRetry(initial=timedelta(seconds=2))


def test_settings_say_themselves_what_they_refuse(acme: "Site") -> None:
    """What a settings class raises as `InvalidParams` reaches whoever wrote them."""
    catalog = offered(acme, "Selector", 'key="strict", factory="acme:Strict", settings="acme:Strict"')
    with pytest.raises(ConfigurationError, match="cannot take its settings: .*size is at least 1, not 0"):
        catalog.create_selector("strict", {"size": 0})
    with pytest.raises(ConfigurationError, match="jitter must be between 0 and 1"):
        catalog.create_retry_policy("exponential", {"jitter": 2})


def test_a_policy_is_made_or_named(acme: "Site") -> None:
    """A policy comes from code, or from a reference to it, its attrs class or its factory, or from a plugin."""
    catalog = offered(acme, "Admission", 'key="acme", factory="acme:Admission"')
    steady = ExponentialRetry(jitter=0)
    assert catalog.create_retry_policy(steady) is steady
    assert catalog.create_retry_policy("acme:RETRY") == steady
    assert catalog.create_retry_policy("acme:ExponentialRetry", {"jitter": 0}) == steady
    made: Any = catalog.create_admission_policy("acme:Admission", {"word": "y"})
    assert made.word == "y"
    plain: Any = catalog.create_admission_policy("acme")
    assert plain.word == "x"
    with pytest.raises(PluginError, match="made a Settings, which is no RetryPolicy"):
        catalog.create_retry_policy("acme:Settings")
    with pytest.raises(PluginError, match="cannot be created: TypeError"):
        catalog.create_admission_policy("acme:Admission", {"wort": "y"})


def test_an_observer_is_a_module_or_an_object(acme: "Site") -> None:
    """An observer is only active where it is asked for: by its plugin's name, a reference, or in code."""
    acme.install(
        "acme-watch",
        "SEEN = []\n@hookimpl\ndef coatcheck_tasks_changed(changes):\n    SEEN.append(changes)\n",
    )
    catalog = discover()
    module: Any = catalog.observer("acme-watch")
    module.coatcheck_tasks_changed([])
    assert module.SEEN == [[]]
    assert catalog.observer(module) is module
    assert callable(catalog.observer("acme:OBSERVER").coatcheck_tasks_changed)
    with pytest.raises(ConfigurationError, match="is no observer"):
        catalog.observer("acme:OBSERVER_WITHOUT_HOOK")
    with pytest.raises(
        ConfigurationError, match="nothing installed offers observer 'acme-wach'; did you mean"
    ):
        catalog.observer("acme-wach")
    assert [row.as_json()["kind"] for row in catalog.listing() if row.distribution == "acme-watch"] == [
        "observer"
    ]


# ---------------------------------------------------------------- what is not there


@pytest.mark.usefixtures("site")
@pytest.mark.parametrize(
    ("ask", "command"),
    [
        (lambda c: c.create_store("sqlite:///x"), "pip install 'coatcheck-store-sql'"),
        (
            lambda c: c.create_store("postgresql+asyncpg://x"),
            r"pip install 'coatcheck-store-sql\[postgresql\]'",
        ),
        (lambda c: c.create_store("mariadb://x"), r"pip install 'coatcheck-store-sql\[mysql\]'"),
        (lambda c: c.create_store("redis+cluster://x"), "pip install 'coatcheck-store-redis'"),
        (lambda c: c.create_handler("ocr:gitee"), "pip install 'coatcheck-handler-ocr'"),
        (lambda c: c.create_handler("x", use="video:runway"), "pip install 'coatcheck-handler-video'"),
        (lambda c: c.create_selector("round-robin"), "pip install 'coatcheck-selectors'"),
        (lambda c: c.create_selector("first-available"), "pip install 'coatcheck-selectors'"),
        (lambda c: c.create_retry_policy("learned"), "pip install 'coatcheck-retries'"),
        (lambda c: c.create_admission_policy("fair-share"), "pip install 'coatcheck-admissions'"),
        (lambda c: c.create_retry_policy("exponentail"), "did you mean 'exponential'"),
        (lambda c: c.create_selector("mine"), "there are: none"),
        (lambda c: c.create_handler("mine"), "there are: none"),
        (lambda c: c.create_handler("acme:scans"), "handler 'acme:scans'"),
        (lambda c: c.create_store("ftp://x"), "there are: memory"),
    ],
)
def test_what_is_missing_is_told_with_the_remedy(ask: Callable[[Catalog], object], command: str) -> None:
    """A key that nothing offers is an error with the command that brings it, or the nearest name."""
    with pytest.raises(ConfigurationError, match=f"nothing installed offers .*{command}") as caught:
        ask(discover())
    assert not isinstance(caught.value, PluginError)


def test_a_distribution_that_is_there_need_not_be_installed(site: "Site") -> None:
    """A key that the right distribution does not offer is mistyped: its own keys are told, and no pip command."""
    site.install(
        "coatcheck-handler-ocr",
        "from coatcheck.hooks import HandlerDescriptor\n"
        "@hookimpl\ndef coatcheck_handlers():\n    return [HandlerDescriptor(key='ocr:gitee', factory='acme:Acme')]\n",
    )
    with pytest.raises(ConfigurationError, match="did you mean 'ocr:gitee'") as caught:
        discover().create_handler("ocr:gitte")
    assert "pip install" not in str(caught.value)


def test_a_broken_distribution_is_why_its_keys_are_missing(site: "Site") -> None:
    """Asking for what a broken or blocked distribution brings tells that, with the cause."""
    site.install("coatcheck-store-sql", "import driver_that_is_missing")
    with pytest.raises(
        PluginError, match=r"comes from coatcheck-store-sql 1\.0, which is failed: ModuleNotF"
    ) as caught:
        discover().create_store("sqlite:///x")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    with pytest.raises(PluginError, match=r"coatcheck-store-sql 1\.0, which is blocked"):
        discover(block=["coatcheck_store_sql"]).create_store("sqlite:///x")
    with pytest.raises(PluginError, match=r"coatcheck-store-sql 1\.0, which is not-allowed"):
        discover(allow=["acme"]).create_store("sqlite:///x")
    with pytest.raises(ConfigurationError, match="pip install 'coatcheck-store-redis'"):
        discover().create_store("redis://x")
    with pytest.raises(PluginError, match="Plugins that cannot be used: coatcheck-store-sql") as caught:
        discover().create_store("ftp://x")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    assert isinstance(discover().create_store("memory://"), MemoryStore)


def test_a_factory_that_cannot_be_imported_fails_when_it_is_asked_for(site: "Site") -> None:
    """A missing driver changes nothing but the listing, until its key is used; then it is told each time."""
    catalog = offered(site, "Store", 'key="acme", factory="driver_that_is_missing:create"')
    assert {row.state for row in catalog.listing()} == {"available"}
    for _ in range(2):
        with pytest.raises(
            PluginError, match="cannot be used: 'driver_that_is_missing:create' cannot be"
        ) as caught:
            catalog.create_store("acme://")
        assert isinstance(caught.value.__cause__, (ModuleNotFoundError, PluginError))
    assert [row.state for row in catalog.listing() if row.key == "acme"] == ["failed"]


@pytest.mark.parametrize("field", ["settings", "account"])
def test_a_class_that_cannot_be_imported_fails_alike(acme: "Site", field: str) -> None:
    """A missing settings or account class is the plugin's error."""
    catalog = offered(acme, "Handler", f'key="acme:x", factory="acme:Acme", {field}="acme:Missing"')
    with pytest.raises(PluginError, match="'acme:Missing' cannot be imported: AttributeError"):
        catalog.create_handler("acme:x")


def test_an_incompatible_plugin_says_what_to_install(site: "Site") -> None:
    """What was written for another plugin API is refused when it is asked for."""
    catalog = offered(site, "Store", 'key="acme", factory="a:b", api="2.0"')
    with pytest.raises(PluginError, match=r"plugin API 2\.0, and this coatcheck has 1\.0.*pip install"):
        catalog.create_store("acme://")
    assert [row.state for row in catalog.listing() if row.key == "acme"] == ["incompatible"]


# ---------------------------------------------------------------- conflicts


@pytest.fixture
def rivals(acme: "Site") -> "Site":
    """Have two distributions that offer one scheme, and each another one of its own."""
    acme.offer("b-rival", "Store", 'key="b", factory="acme:Store", schemes=("both", "bee")')
    acme.offer("a-rival", "Store", 'key="a", factory="acme:wrong", schemes=("both", "ay")')
    return acme


@pytest.mark.usefixtures("rivals")
def test_a_conflict_is_an_error_where_it_is_used() -> None:
    """Two distributions with one key are named when the key is used, and their other keys work."""
    catalog = discover()
    with pytest.raises(
        PluginError, match=r"store 'both' is offered by a-rival 1\.0 and b-rival 1\.0; decide"
    ):
        catalog.create_store("both://")
    assert isinstance(catalog.create_store("bee://"), MemoryStore)
    states = {
        row.key: (row.state, row.reason) for row in catalog.listing() if row.distribution.endswith("rival")
    }
    assert {state for state, _ in states.values()} == {"conflict"}
    assert "is also offered by b-rival 1.0" in states["a"][1]


@pytest.mark.usefixtures("rivals")
def test_prefer_decides_a_conflict() -> None:
    """Configuration says who serves a key, by normalised name; never the order of installation."""
    catalog = discover(prefer={"both": "B_Rival"})
    assert isinstance(catalog.create_store("both://"), MemoryStore)
    assert {row.key: row.state for row in catalog.listing() if row.distribution.endswith("rival")} == {
        "a": "blocked",
        "b": "loaded",
    }


@pytest.mark.usefixtures("rivals")
def test_preferring_what_is_not_there_is_an_error() -> None:
    """A preference that cannot be met is told, and nobody else takes the key silently."""
    for scheme in ("both", "bee"):
        with pytest.raises(
            PluginError, match=f"`prefer` gives store '{scheme}' to c-rival, which does not offer it"
        ):
            discover(prefer={scheme: "c-rival"}).create_store(f"{scheme}://")


def test_an_incompatible_rival_is_none(acme: "Site") -> None:
    """What cannot be used anyway takes no key from another."""
    acme.offer("a-rival", "Store", 'key="both", factory="acme:Store"')
    acme.offer("b-rival", "Store", 'key="both", factory="acme:Store", api="9.0"')
    assert isinstance(discover().create_store("both://"), MemoryStore)


def test_a_builtin_can_be_replaced_only_by_configuration(acme: "Site") -> None:
    """A plugin that offers a built-in key is a conflict like any other."""
    acme.offer("acme-memory", "Store", 'key="memory", factory="acme:Store"')
    with pytest.raises(PluginError, match="is offered by acme-memory 1.0 and coatcheck"):
        discover().create_store("memory://")
    assert type(discover(prefer={"memory": "coatcheck"}).create_store("memory://")) is MemoryStore
    assert type(discover(prefer={"memory": "acme-memory"}).create_store("memory://")) is not MemoryStore


def test_the_same_key_for_two_kinds_is_no_conflict(acme: "Site") -> None:
    """Keys are unique within their kind."""
    acme.offer("acme-one", "Retry", 'key="memory", factory="acme:ExponentialRetry"')
    assert isinstance(discover().create_store("memory://"), MemoryStore)


# ---------------------------------------------------------------- the listing


def test_the_listing_tells_everything(acme: "Site") -> None:
    """Rows are in order of distribution and key, are JSON, and show what is broken and why."""
    acme.offer("c-one", "Store", 'key="z", factory="acme:Store", summary="last", capabilities=["durable"]')
    acme.offer("c-two", "Handler", 'key="b:x", factory="missing:X"', 'key="a:x", factory="acme:Acme"')
    acme.install("a-broken", "1 / 0")
    acme.install("b-empty", "@hookimpl\ndef coatcheck_stores():\n    return []\n")
    acme.install("d-blocked", "")
    catalog = discover(block=["d-blocked"])
    rows = [row for row in catalog.listing() if row.distribution != "coatcheck"]
    assert [(row.distribution, row.key, row.state.value) for row in rows] == [
        ("a-broken", None, "failed"),
        ("b-empty", None, "available"),
        ("c-one", "z", "available"),
        ("c-two", "a:x", "available"),
        ("c-two", "b:x", "available"),
        ("d-blocked", None, "blocked"),
    ]
    assert [row.broken for row in rows] == [True, False, False, False, False, False]
    assert rows[0].title == "plugin a-broken 1.0"
    assert rows[1].reason == "offers nothing"
    assert json.loads(json.dumps(rows[2].as_json())) == {
        "kind": "store",
        "key": "z",
        "distribution": "c-one",
        "version": "1.0",
        "api": "1.0",
        "capabilities": ["durable"],
        "state": "available",
        "reason": "",
        "summary": "last",
        "schemes": ["z"],
    }
    loaded = {row.key: row.state.value for row in catalog.listing(load=True)}
    assert (loaded["z"], loaded["a:x"], loaded["b:x"]) == ("loaded", "loaded", "failed")
    assert loaded == {row.key: row.state.value for row in catalog.listing(load=True)}


def test_listing_an_observer_loads_nothing(site: "Site") -> None:
    """An observer's module is imported already."""
    site.install("acme-watch", "@hookimpl\ndef coatcheck_tasks_changed(changes):\n    pass\n")
    (row,) = [row for row in discover().listing(load=True) if row.kind == Kind.OBSERVER]
    assert (row.state, row.api) == (PluginState.AVAILABLE, None)


@pytest.mark.parametrize("value", ["1", "TRUE", " yes "])
def test_strictness_makes_every_failure_fatal(
    site: "Site", monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    """With the variable set, discovering a broken plugin raises, with all that is broken."""
    monkeypatch.setenv(catalog_room.STRICT_VARIABLE, value)
    discover()
    site.install("a-broken", "1 / 0")
    site.offer("b-old", "Store", 'key="x", factory="a:b", api="0.1"')
    site.install("c-blocked", "1 / 0")
    with pytest.raises(PluginError) as caught:
        discover(block=["c-blocked"])
    message = str(caught.value)
    assert "plugin a-broken 1.0 is failed: ZeroDivisionError" in message
    assert "store 'x' of b-old 1.0 is incompatible" in message
    assert "c-blocked" not in message
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    monkeypatch.setenv(catalog_room.STRICT_VARIABLE, "0")
    discover()


def test_secrets_are_in_no_listing(acme: "Site") -> None:
    """Nothing that a store was made of shows in the catalog."""
    catalog = offered(acme, "Store", 'key="acme", factory="acme:Store", settings="acme:Settings"')
    store: Any = catalog.create_store("acme://u:hunter2@h?password=swordfish")
    assert store.made_of[1].password.reveal() == "swordfish"
    shown = repr(catalog) + repr(catalog.plugins) + repr(catalog.listing()) + repr(store.made_of[1])
    assert "hunter2" not in shown
    assert "swordfish" not in shown


def test_discovering_imports_nothing_heavy() -> None:
    """Importing the catalog and listing what core brings loads no driver, and not even the memory store."""
    code = (
        "import sys; from coatcheck.catalog import discover; discover(allow=[]).listing();"
        "print(*(name for name in sys.modules if name.split('.')[0] in {'sqlalchemy', 'redis', 'httpx', 'pydantic'}"
        " or name == 'coatcheck.memory'))"
    )
    environ = {key: value for key, value in os.environ.items() if not key.startswith("COV")}
    environ["PYTHONPATH"] = os.pathsep.join(each for each in sys.path if each)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
