# ruff: noqa: INP001 - a script, in a folder of pages
"""Write the pages of the docs that are made from code: after changes of the lifecycle, or of the kit's rules.

``python docs/generate.py`` writes them; a test checks that they are up to date.
"""

import ast
import inspect
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import cast

from coatcheck.gates import Rate
from coatcheck.handler import Capability
from coatcheck.lifecycle import ARROWS, HISTORY_LIMIT, Arrow
from coatcheck.task import Status
from coatcheck_conformance import Level, table
from coatcheck_conformance.cli import KITS
from coatcheck_handler_ocr import OcrHandler
from coatcheck_handler_video import VideoHandler
from coatcheck_http import ProviderFacts
from coatcheck_sandbox.demo.providers import OCR, VIDEO, make_handler

FOLDER = Path(__file__).parent
SELDOM = ("attested", "settled while flagged")
"""Events that could happen nearly anywhere, and are left out of the picture."""

PAGE = """\
# The life of a task

<!-- Made from `coatcheck.lifecycle` by docs/generate.py: change it there. -->

A task has one of nine statuses, and moves only along the arrows below. The table is the program: `coatcheck.lifecycle`
holds it as data (`ARROWS`), every store computes what becomes of a task by the functions of that module, and a move
that is not in the table raises `InvalidTransition`.

{statuses}

## The picture

Left out are the two events that can happen nearly anywhere: {seldom}.

```mermaid
{diagram}
```

## The table

An event is a class of `coatcheck.events`, with which a worker settles a claim or a person decides; those in lower case
are steps of the store. An answer that changes no status, such as a failed query, has no arrow.

{table}

## What holds on every arrow

- A task ends in one of {ends}.
  Of these, a person can move it on from SUBMIT_UNKNOWN and
  TRACKING_TIMED_OUT; late proof can move it on from SUBMIT_UNKNOWN. The other three are for ever.
- SUBMIT_UNKNOWN is never sent again by itself.
- Only a started submission can become SUBMIT_UNKNOWN, and a started one never goes back to the queue as if nothing had
  been sent.
- Once `cancel` has returned True, the task ends in nothing but CANCELED: whatever else it would have become, or if it
  would have gone back to the queue. Its error keeps what is known.
- A task holds the slots of its gates from the claim for submission until it leaves {active}.
- `due_at` is never after `deadline_at`.
- The last {limit} transitions are kept with the task, the first one always. Repetitions are counted in one entry, so
  that a task that is put off or queried ten thousand times stays as small as it was.
"""


def meanings() -> dict[str, str]:
    """Return the sentence below each member of `Status`."""
    (cls,) = ast.parse(inspect.getsource(Status)).body
    assert isinstance(cls, ast.ClassDef)  # noqa: S101 - it is what was asked for
    found = {}
    for member, text in zip(cls.body, cls.body[1:], strict=False):
        if (
            isinstance(member, ast.Assign)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            found[ast.unparse(member.targets[0])] = str(text.value.value)
    return found


def kind(status: Status) -> str:
    """Return what is done with a task in a status."""
    if status.terminal:
        return "an end"
    return "is queried" if status.queryable else "on its way"


def name(status: Status | None) -> str:
    """Return a status as the table shows it."""
    return status.value if status else "-"


def rows(arrows: Iterable[Arrow]) -> list[str]:
    """Return the table's rows; arrows of one event and one condition share a row."""
    groups: dict[tuple[str, str], list[Arrow]] = {}
    for arrow in arrows:
        groups.setdefault((arrow.event, arrow.text), []).append(arrow)
    return [
        f"| {', '.join(dict.fromkeys(name(each.source) for each in group))} | {event} "
        f"| {', '.join(dict.fromkeys(name(each.target) for each in group))} | {text} |"
        for (event, text), group in groups.items()
    ]


def edges(arrows: Iterable[Arrow]) -> list[str]:
    """Return the picture's lines; arrows between the same two statuses share a line."""
    labels: dict[tuple[Status | None, Status], list[str]] = {}
    for arrow in arrows:
        if arrow.event not in SELDOM:
            labels.setdefault((arrow.source, arrow.target), []).append(arrow.event)
    lines = [
        f"    {source.value if source else '[*]'} --> {target.value} : {' / '.join(dict.fromkeys(events))}"
        for (source, target), events in labels.items()
    ]
    left = {arrow.source for arrow in arrows}
    return lines + [f"    {status.value} --> [*]" for status in Status if status not in left]


def lifecycle_page() -> str:
    """Return the page about the lifecycle."""
    told = meanings()
    return PAGE.format(
        statuses="\n".join(
            ["| status | | meaning |", "|---|---|---|"]
            + [f"| {status.value} | {kind(status)} | {told[status.value]} |" for status in Status]
        ),
        seldom=" and ".join(f"*{event}*" for event in SELDOM),
        diagram="\n".join(["stateDiagram-v2", *edges(ARROWS)]),
        table="\n".join(["| from | event | to | when |", "|---|---|---|---|", *rows(ARROWS)]),
        ends=", ".join(status.value for status in Status if status.terminal),
        active=", ".join(status.value for status in Status if status.active),
        limit=HISTORY_LIMIT,
    )


RULES_PAGE = """\
# The rules of the conformance kit

<!-- Made from the suites of coatcheck-conformance by docs/generate.py: change it there. -->

What each suite of the [conformance kit](conformance.md) tries. A rule's promise is the sentence of the contract that it
checks. `needs` names the capabilities and hooks without which a rule does not apply, and is skipped.

{suites}
"""


def rules_page() -> str:
    """Return the page about the rules of the conformance kit."""
    parts = []
    for name, kit in KITS.items():
        suite, _ = kit.load()
        rules = suite.rules()
        musts = sum(each.level is Level.MUST for each in rules)
        parts.append(
            f"## {name.capitalize()}\n\n`{suite.__name__}`: {len(rules)} rules, {musts} of them MUST.\n\n{table(rules)}"
        )
    return RULES_PAGE.format(suites="\n".join(parts).rstrip())


PROVIDERS_PAGE = """\
# Providers

<!-- Made from the handlers by docs/generate.py: change them there. -->

The providers that come with coatcheck, by what their handlers say of themselves. An empty field is not known, or not
documented; it never means "without limit". `tried live` says whether the handler was ever tried against the live
service. All others were written from documentation and public clients, read in 2026, and are tried by the
[conformance kit](../conformance.md) on answers as documented, and against the [sandbox](../testing.md#the-sandbox),
which was written from the same sources: each page says what is known and what is a guess.

The rates are those that an account has by default. They become gates when you
[say so](../gates.md#what-providers-document). `links` is how long the provider's links to results work: what is
behind them is fetched by the query that sees the job done. Where a provider neither deduplicates nor can be asked for a
job by our own name, a lost answer to a submission is [a task in doubt](../unknown.md).

## OCR and document parsing

`pip install coatcheck-handler-ocr`. All take an `OcrRequest` and give an `OcrResult`.

{ocr}

## Video generation

`pip install coatcheck-handler-video`. All take a `VideoRequest` and give a `VideoResult`. Any of them can
[capture](video-capture.md): copy finished videos to a place of yours before their links end.

{video}
"""
PLACE = "http://127.0.0.1:9"
"""Where no sandbox is: handlers are made, and call nobody."""


def duration(value: timedelta | None) -> str:
    """Return a duration as the table shows it."""
    if value is None:
        return ""
    for unit, seconds in (("d", 86_400), ("h", 3600), ("min", 60)):
        if value.total_seconds() % seconds == 0:
            return f"{value.total_seconds() / seconds:g} {unit}"
    return f"{value.total_seconds():g} s"


def rate(value: Rate | None) -> str:
    """Return a rate as the table shows it."""
    if value is None:
        return ""
    per = duration(value.per)
    return f"{value.count}/{per.removeprefix('1 ')}"


def yes(*, truth: bool) -> str:
    """Return what stands for a truth value."""
    return "yes" if truth else ""


def facts_of(handler: OcrHandler | VideoHandler) -> ProviderFacts:
    """Return what a handler knows of its provider; each that comes with coatcheck has to say it."""
    assert handler.facts is not None, handler.key  # noqa: S101 - it is what was asked for
    return handler.facts


def common(handler: OcrHandler | VideoHandler) -> dict[str, str]:
    """Return the columns that all providers have."""
    facts, capabilities = facts_of(handler), handler.capabilities
    window = handler.idempotency_window
    return {
        "submit": rate(facts.submit_rate),
        "query": rate(facts.query_rate),
        "at once": str(facts.concurrency or ""),
        "poll floor": duration(facts.poll_floor),
        "links": duration(facts.links_live),
        "cancel": yes(truth=Capability.CANCEL in capabilities),
        "callback": yes(truth=Capability.CALLBACK in capabilities),
        "deduplicates": duration(window),
        "look-up": yes(truth=Capability.FIND_SUBMISSION in capabilities),
        "tried live": yes(truth=facts.verified),
    }


def ocr_row(key: str, handler: OcrHandler) -> dict[str, str]:
    """Return a row of the table of OCR providers."""
    return {
        "handler": f"[`{key}`]({key.removeprefix('ocr:')}.md)",
        "provider": facts_of(handler).name,
        "reads": ", ".join(handler.url_schemes),
        "choices": ", ".join(f"`{each}`" for each in sorted(handler.supports)),
        "gives": ", ".join(sorted(handler.formats)),
        **common(handler),
    }


def video_row(key: str, handler: VideoHandler) -> dict[str, str]:
    """Return a row of the table of video providers."""
    return {
        "handler": f"[`{key}`](video-{key.removeprefix('video:')}.md)",
        "provider": facts_of(handler).name,
        "modes": ", ".join(sorted(each.replace("_", " ") for each in handler.modes)),
        "choices": ", ".join(f"`{each}`" for each in sorted(handler.supports)),
        **common(handler),
        "captured": yes(truth=isinstance(handler, VideoHandler)),
    }


def table_of(rows: Sequence[dict[str, str]]) -> str:
    """Return rows as a table."""
    head = list(rows[0])
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(row[name] for name in head)} |" for row in rows]
    return "\n".join(lines)


def providers_page() -> str:
    """Return the page about all providers."""
    rows = [ocr_row(key, cast("OcrHandler", make_handler(key, PLACE))) for key in sorted(OCR)]
    rows.append(
        dict.fromkeys(rows[0], "")
        | {
            "handler": "[`ocr:http`](http.md)",
            "provider": "any service over HTTP, described by settings",
            "reads": "http, https",
            "choices": "as described",
            "gives": "as described",
            "cancel": "if described",
            "callback": "if described",
        }
    )
    videos = [video_row(key, cast("VideoHandler", make_handler(key, PLACE))) for key in sorted(VIDEO)]
    return PROVIDERS_PAGE.format(ocr=table_of(rows), video=table_of(videos))


PAGES = {
    "lifecycle.md": lifecycle_page,
    "conformance-rules.md": rules_page,
    "providers/README.md": providers_page,
}
"""What is generated: the file, and what makes its text."""


def main() -> None:
    """Write every page."""
    for file, make in PAGES.items():
        (FOLDER / file).write_text(make(), "utf-8")


if __name__ == "__main__":
    main()
