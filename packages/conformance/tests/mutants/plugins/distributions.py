"""Mutants of plugin distributions."""

from __future__ import annotations

from mutants.plugins import breaks_plugin

_LIGHT, _THINGS = "/plugin.py", "/things.py"
_ENTRIES = "entry_points.txt"
_TOP = "from coatcheck.hooks import *\n"
_STORES = "@hookimpl\ndef coatcheck_stores():\n"
_SELECTORS = "def coatcheck_selectors():\n"
_ADMISSION = "@hookimpl\n{hook}\n    {body}\n\n\n" + _STORES


def _another_hook(hook: str, body: str) -> tuple[str, str]:
    """Return what puts one more hook before the first."""
    return _STORES, _ADMISSION.format(hook=hook, body=body)


# ------------------------------------------------------------------ the entry point

breaks_plugin(
    "PLUGIN-ENTRY-1",
    "has_two_entry_points",
    _ENTRIES,
    ("acme = coatcheck_acme.plugin\n", "acme = coatcheck_acme.plugin\nmore = coatcheck_acme.more\n"),
)
breaks_plugin("PLUGIN-ENTRY-2", "is_called_plugin", _ENTRIES, ("acme =", "plugin ="))

# ------------------------------------------------------------------ the light module

breaks_plugin("PLUGIN-LIGHT-1", "imports_its_driver", _LIGHT, (_TOP, f"import driver_of_acme\n{_TOP}"))
breaks_plugin(
    "PLUGIN-LIGHT-2",
    "computes_when_imported",
    _LIGHT,
    (
        _TOP,
        f"import time\n\nuntil = time.perf_counter() + 0.15\nwhile time.perf_counter() < until:\n    pass\n{_TOP}",
    ),
)
breaks_plugin(
    "PLUGIN-LIGHT-3",
    "warns_when_imported",
    _LIGHT,
    (_TOP, f"{_TOP}import warnings\n\nwarnings.warn('old', DeprecationWarning)\n"),
)
breaks_plugin("PLUGIN-LIGHT-3", "prints_when_imported", _LIGHT, (_TOP, f"{_TOP}print('hello')\n"))
breaks_plugin(
    "PLUGIN-LIGHT-4",
    "reads_when_imported",
    _LIGHT,
    (_TOP, f"import os\n\nwith open(os.devnull) as file:\n    file.read()\n{_TOP}"),
)
breaks_plugin(
    "PLUGIN-LIGHT-4",
    "starts_a_thread",
    _LIGHT,
    (
        _TOP,
        f"import threading\n\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n{_TOP}",
    ),
)

# ------------------------------------------------------------------ hooks and descriptors

breaks_plugin(
    "PLUGIN-HOOK-1",
    "misspells_a_hook",
    _LIGHT,
    _another_hook("def coatcheck_policies():", "return []"),
)
breaks_plugin(
    "PLUGIN-HOOK-1",
    "has_an_async_hook",
    _LIGHT,
    _another_hook("async def coatcheck_admission_policies():", "return []"),
)
breaks_plugin(
    "PLUGIN-HOOK-1",
    "has_a_keyword_only_hook",
    _LIGHT,
    _another_hook("def coatcheck_admission_policies(*, more=1):", "return []"),
)
breaks_plugin(
    "PLUGIN-HOOK-1",
    "returns_dictionaries",
    _LIGHT,
    _another_hook("def coatcheck_admission_policies():", "return [{'key': 'x'}]"),
)
breaks_plugin(
    "PLUGIN-HOOK-1",
    "describes_nothing_valid",
    _LIGHT,
    _another_hook(
        "def coatcheck_admission_policies():", "return [AdmissionDescriptor(key='x', factory='no reference')]"
    ),
)
breaks_plugin("PLUGIN-HOOK-1", "raises_when_imported", _LIGHT, (_TOP, f"{_TOP}raise RuntimeError('no')\n"))
breaks_plugin(
    "PLUGIN-HOOK-2",
    "offers_nothing",
    _ENTRIES,
    ("coatcheck_acme.plugin", "coatcheck_acme.nothing"),
)
breaks_plugin("PLUGIN-API-1", "is_of_tomorrow", _LIGHT, ('key="first", ', 'key="first", api="9.0", '))
breaks_plugin(
    "PLUGIN-KEY-1",
    "offers_a_key_twice",
    _LIGHT,
    (_SELECTORS + "    return [", _SELECTORS + "    return 2 * ["),
)
breaks_plugin(
    "PLUGIN-KEY-1",
    "offers_a_scheme_twice",
    _LIGHT,
    ('schemes=("acme", "acmes")', 'schemes=("acme", "acmes", "acme")'),
)

# ------------------------------------------------------------------ what descriptors name

breaks_plugin(
    "PLUGIN-REF-1",
    "names_no_factory",
    _LIGHT,
    ("coatcheck_acme.things:make_first", "coatcheck_acme.things:make"),
)
breaks_plugin(
    "PLUGIN-REF-1", "names_no_params", _LIGHT, ("coatcheck_acme.things:Poster", "coatcheck_acme.things:Bill")
)
breaks_plugin(
    "PLUGIN-REF-1",
    "names_no_module",
    _LIGHT,
    ("coatcheck_acme.things:Account", "coatcheck_acme.gone:Account"),
)
breaks_plugin(
    "PLUGIN-SETTINGS-1",
    "has_plain_settings",
    _THINGS,
    (
        "@frozen(kw_only=True)\nclass Account:\n    user: str\n    api_key: Secret\n",
        "class Account:\n    pass\n",
    ),
)
breaks_plugin("PLUGIN-SECRET-1", "shows_a_password", _THINGS, ('field(default="", repr=False)', '""'))
breaks_plugin(
    "PLUGIN-SECRET-2",
    "shows_its_account",
    _THINGS,
    (
        'return f"Press({self.key!r})"',
        'return f"Press({[each.api_key.reveal() for each in self.accounts.values()]!r})"',
    ),
)

# ------------------------------------------------------------------ what factories make

breaks_plugin(
    "PLUGIN-HANDLER-1",
    "wants_an_account",
    _THINGS,
    ("self.accounts = accounts or {}", 'self.accounts = {"default": accounts["default"]}'),
)
breaks_plugin(
    "PLUGIN-HANDLER-2",
    "has_a_key_of_its_own",
    _THINGS,
    ("self.key = self.provider_key = key", 'self.key = self.provider_key = "acme:press"'),
)
breaks_plugin(
    "PLUGIN-HANDLER-3",
    "takes_other_params",
    _THINGS,
    ("class Press(Handler[Poster])", "class Press(Handler[Settings])"),
)
breaks_plugin(
    "PLUGIN-HANDLER-4",
    "reads_for_a_handler",
    _THINGS,
    ("self.accounts = accounts or {}", "self.accounts = accounts or {}\n        open(os.devnull).close()"),
)
breaks_plugin(
    "PLUGIN-STORE-1",
    "knows_one_scheme",
    _THINGS,
    ("    return MemoryStore()", '    return MemoryStore() if url.startswith("acme:") else None'),
)
breaks_plugin(
    "PLUGIN-STORE-1",
    "takes_no_settings",
    _THINGS,
    ("def create(url, settings=None):", "def create(url):"),
)
breaks_plugin(
    "PLUGIN-STORE-2",
    "opens_for_a_store",
    _THINGS,
    ("    return MemoryStore()", "    open(os.devnull).close()\n    return MemoryStore()"),
)
breaks_plugin(
    "PLUGIN-POLICY-1",
    "makes_no_policy",
    _THINGS,
    ("class Patience(ExponentialRetry):", "class Patience:"),
)
