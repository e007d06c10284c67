import asyncio
from datetime import timedelta

import pytest
from attrs import define, field

from coatcheck.secret import Secret
from coatcheck_http import MintedToken, TokenCache


@define
class Mint:
    """Mints numbered tokens when it is let."""

    lifetime: timedelta | None = None
    minted: int = 0
    now: float = 0.0
    error: Exception | None = None
    gate: asyncio.Event = field(factory=asyncio.Event)

    async def __call__(self, key: str) -> MintedToken:
        """Return the next token of a key."""
        self.minted += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return MintedToken(token=Secret(f"{key}-{self.minted}"), lifetime=self.lifetime)

    def clock(self) -> float:
        """The time."""
        return self.now


@pytest.fixture
def mint() -> Mint:
    """A mint that does not wait."""
    made = Mint()
    made.gate.set()
    return made


async def test_one_mints_for_all(mint: Mint) -> None:
    """Many who ask at once cause one request; keys are apart."""
    mint.gate.clear()
    cache = TokenCache(mint, clock=mint.clock)
    asking = [asyncio.ensure_future(cache.get("a")) for _ in range(10)]
    await asyncio.sleep(0)
    mint.gate.set()
    assert {each.reveal() for each in await asyncio.gather(*asking)} == {"a-1"}
    assert (await cache.get("b")).reveal() == "b-2"
    assert mint.minted == 2


async def test_who_stops_waiting_disturbs_nobody(mint: Mint) -> None:
    """The first to ask may be cancelled; the others get their token."""
    mint.gate.clear()
    cache = TokenCache(mint, clock=mint.clock)
    one, other = asyncio.ensure_future(cache.get("a")), asyncio.ensure_future(cache.get("a"))
    await asyncio.sleep(0)
    one.cancel()
    await asyncio.gather(one, return_exceptions=True)
    mint.gate.set()
    assert (await other).reveal() == "a-1"


async def test_a_token_is_replaced_before_it_ends(mint: Mint) -> None:
    """By the margin, or half of a short life."""
    mint.lifetime = timedelta(seconds=100)
    cache = TokenCache(mint, clock=mint.clock)
    for now, token in ((0, "a-1"), (69, "a-1"), (70, "a-2"), (139, "a-2"), (141, "a-3")):
        mint.now = now
        assert (await cache.get("a")).reveal() == token
    mint.lifetime = timedelta(seconds=10)
    for now, token in ((300, "a-4"), (304, "a-4"), (305, "a-5")):
        mint.now = now
        assert (await cache.get("a")).reveal() == token


async def test_a_failure_is_not_kept(mint: Mint) -> None:
    """All who wait are told, and the next one tries again."""
    cache = TokenCache(mint, clock=mint.clock)
    mint.error = ConnectionError("away")
    results = await asyncio.gather(cache.get("a"), cache.get("a"), return_exceptions=True)
    assert [str(each) for each in results] == ["away", "away"]
    mint.error = None
    assert (await cache.get("a")).reveal() == "a-2"


async def test_a_refused_token_is_dropped_once(mint: Mint) -> None:
    """Who was refused with an old token does not drop the new one."""
    cache = TokenCache(mint, clock=mint.clock)
    old = await cache.get("a")
    assert cache.drop("a", old)
    assert not cache.drop("a")
    new = await cache.get("a")
    assert not cache.drop("a", old)
    assert await cache.get("a") == new
    assert "a-2" not in repr(cache)


async def test_a_refused_token_is_dropped_unless_it_is_new(mint: Mint) -> None:
    """A new one that is refused means that something else is wrong: minting would go on for ever."""
    cache = TokenCache[str](mint, clock=mint.clock, fresh=timedelta(seconds=30))
    assert not cache.refused("a")
    assert cache.peek("a") is None
    first = await cache.get("a")
    assert cache.peek("a") == first
    mint.now = 29.0
    assert not cache.refused("a")
    assert await cache.get("a") == first
    mint.now = 30.0
    assert cache.refused("a")
    assert cache.peek("a") == first  # to be hidden in what is said of the refusal
    assert await cache.get("a") != first
