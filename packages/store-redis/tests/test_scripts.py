"""The Lua scripts: told, complete, and never lost for good."""

import re
from datetime import timedelta
from importlib.resources import files

import pytest
from redis_hooks import ask

from coatcheck.lifecycle import Settlement
from coatcheck.store import Started
from coatcheck.task import Task
from coatcheck_conformance.drafts import HANDLER, make_drafts
from coatcheck_conformance.store.outcomes import succeeded
from coatcheck_store_redis import create
from coatcheck_store_redis.scripts import script

FOLDER = files("coatcheck_store_redis") / "scripts"
NAMES = sorted(each.name.removesuffix(".lua") for each in FOLDER.iterdir() if each.name.endswith(".lua"))
LEASE = timedelta(minutes=1)


@pytest.mark.parametrize("name", NAMES)
def test_each_script_says_what_it_takes_and_gives(name: str) -> None:
    """Its header tells KEYS, ARGV, what it returns, and its complexity."""
    text = (FOLDER / f"{name}.lua").read_text("utf-8")
    header = text[: re.search(r"^(?!--)", text, re.MULTILINE).start()]  # type: ignore[union-attr]
    for word in ("KEYS", "ARGV", "returns", "time"):
        assert re.search(rf"^-- {word} ", header, re.MULTILINE), word


@pytest.mark.parametrize("name", NAMES)
def test_no_script_looks_through_all_keys(name: str) -> None:
    """Never KEYS, and never a scan of all of them."""
    assert not re.search(r"call\('(KEYS|SCAN|FLUSH\w+|RANDOMKEY)'", script(name).text)


async def test_scripts_that_the_server_forgot_are_sent_again(redis_url: str) -> None:
    """`SCRIPT FLUSH`, as a restart or a failover does it, disturbs no step."""
    async with create(redis_url) as store:
        await store.add(make_drafts(3))
        await ask(store, "SCRIPT", "FLUSH")
        claims = await store.claim_submissions("w", [HANDLER], 3, LEASE)
        await ask(store, "SCRIPT", "FLUSH")
        started = [each for each in await store.start(claims.tasks, LEASE) if isinstance(each, Started)]
        await ask(store, "SCRIPT", "FLUSH")
        answers = await store.settle([Settlement(task=each.task, event=succeeded()) for each in started])
        assert len(answers) == 3
        assert all(isinstance(each, Task) for each in answers)


async def test_a_claim_costs_the_same_whatever_the_backlog(redis_url: str) -> None:
    """The commands of a claim are as many behind 4,000 tasks as behind 200, also past 2,000 behind a closed gate."""
    async with create(redis_url) as store:

        async def commands_of_a_claim() -> int:
            before = await _commands(store)
            claims = await store.claim_submissions("w", [HANDLER], 50, LEASE)
            assert len(claims.tasks) == 50
            return await _commands(store) - before

        await store.pause_gate("closed", reason="test")
        await store.add(make_drafts(200))
        await commands_of_a_claim()
        few = await commands_of_a_claim()
        for _ in range(4):
            await store.add(make_drafts(500, gates=["closed"], priority=9))
            await store.add(make_drafts(500))
        await commands_of_a_claim()
        many = await commands_of_a_claim()
        assert many <= few + 25


async def _commands(store: object) -> int:
    text: bytes = await ask(store, "INFO", "commandstats")  # type: ignore[arg-type]
    return sum(int(count) for count in re.findall(rb"calls=(\d+)", text))
