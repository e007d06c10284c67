"""The examples of the Agents-Flex guide, told as there and kept to the letter, on every embedded store."""

from collections import Counter
from datetime import timedelta

from attrs import frozen

from coatcheck import App, QueryResult, Rate, Status, Store, SubmitOptions, Task, gates
from coatcheck.testing import ManualClock, ScriptedHandler
from coatcheck_selectors import consistent_hash, least_active, random, round_robin, weighted

HOUR = timedelta(hours=1)


@frozen
class OcrRequest:
    """What both OCR handlers take."""

    url: str = "https://example.com/a.png"


@frozen
class VideoRequest:
    """What both video handlers take."""

    prompt: str = "a cat"


def ocr(key: str) -> ScriptedHandler[OcrRequest]:
    """Return an OCR handler."""
    return ScriptedHandler(key, OcrRequest)


def video(key: str) -> ScriptedHandler[VideoRequest]:
    """Return a video handler."""
    return ScriptedHandler(key, VideoRequest)


async def submit(app: App, params: object, **options: str) -> Task:
    """Submit with options."""
    given = SubmitOptions(**options)  # type: ignore[arg-type] # texts
    return await app.manager.submit(params, tracking_timeout=HOUR, options=given)


async def chosen(app: App, params: object, times: int, **options: str) -> list[str]:
    """Submit that often, and return which handlers got the tasks."""
    return [(await submit(app, params, **options)).route.handler_key for _ in range(times)]


async def test_weights_3_and_1_with_a_video_group_in_the_same_table(store: Store) -> None:
    """Weight 3 for "ocr:gitee" and 1 for "ocr:paddle": of four OCR tasks, three go to Gitee and one to Paddle.

    The same table holds the video handlers, 1 and 1. Selection happens among the handlers of one request type: video
    tasks go to the video handlers by turns, and take none of the turns of OCR.
    """
    weights = {"ocr:gitee": 3, "ocr:paddle": 1, "video:kling": 1, "video:runway": 1}
    pages_handlers, films_handlers = (
        map(ocr, ("ocr:gitee", "ocr:paddle")),
        map(video, ("video:kling", "video:runway")),
    )
    async with App(store, [*pages_handlers, *films_handlers], selector=weighted(weights)) as app:
        for _ in range(5):
            pages = await chosen(app, OcrRequest(), 2)
            films = await chosen(app, VideoRequest(), 2)
            pages += await chosen(app, OcrRequest(), 2)
            assert Counter(pages) == {"ocr:gitee": 3, "ocr:paddle": 1}
            assert films == ["video:kling", "video:runway"]


async def test_weights_2_and_1_are_exactly_two_and_one_in_every_three(store: Store) -> None:
    """In every three tasks exactly two go to a and one to b."""
    async with App(store, [ocr("a"), ocr("b")], selector=weighted({"a": 2, "b": 1})) as app:
        turns = await chosen(app, OcrRequest(), 12)
    for begin in range(len(turns) - 2):
        assert Counter(turns[begin : begin + 3]) == {"a": 2, "b": 1}


async def test_round_robin_takes_turns_in_the_order_of_keys(store: Store) -> None:
    """Registration order means nothing; each request type has its own turns."""
    async with App(
        store, [ocr("b"), ocr("c"), ocr("a"), video("x"), video("y")], selector=round_robin()
    ) as app:
        assert await chosen(app, OcrRequest(), 2) == ["a", "b"]
        assert await chosen(app, VideoRequest(), 1) == ["x"]
        assert await chosen(app, OcrRequest(), 2) == ["c", "a"]


async def test_random_takes_any(store: Store) -> None:
    """All of them, some time."""
    async with App(store, [ocr("a"), ocr("b")], selector=random(seed=1)) as app:
        assert {*await chosen(app, OcrRequest(), 30)} == {"a", "b"}


async def test_the_same_user_always_gets_the_same_handler(store: Store) -> None:
    """The hash key is taken from the request, here the tenant."""
    handlers = [ocr(f"ocr:{number}") for number in range(4)]
    async with App(store, handlers, selector=consistent_hash("tenant_id")) as app:
        homes = {user: {*await chosen(app, OcrRequest(), 3, tenant_id=user)} for user in "abcdefgh"}
    assert all(len(home) == 1 for home in homes.values())
    assert len(set.union(*homes.values())) > 1


async def test_the_least_active_handler_gets_the_task(store: Store) -> None:
    """By the counts of the application; equally few, and it is the first."""
    active = {"a": 2, "b": 1, "c": 1}
    async with App(store, [ocr(key) for key in "abc"], selector=least_active(active.__getitem__)) as app:
        assert await chosen(app, OcrRequest(), 1) == ["b"]
        active["b"] = 3
        assert await chosen(app, OcrRequest(), 1) == ["c"]


async def test_the_least_active_handler_by_the_stores_own_counts(store: Store) -> None:
    """Without a provider of counts, the tasks in the store are counted, and a burst spreads."""
    async with App(store, [ocr(key) for key in "abc"], selector=least_active()) as app:
        assert Counter(await chosen(app, OcrRequest(), 9)) == {"a": 3, "b": 3, "c": 3}


async def test_account_limit_1_with_tasks_a_and_b(store: Store, clock: ManualClock) -> None:
    """Account X allows 1. While A is SUBMITTED or RUNNING, B stays PENDING_SUBMIT; when A has ended, B is submitted."""
    handler: ScriptedHandler[OcrRequest] = ScriptedHandler("ocr", OcrRequest, query=[QueryResult.running()])
    async with App(store, [handler]) as app:
        await app.manager.set_gate(gates.account("ocr", "x"), concurrency=1)
        a = await submit(app, OcrRequest(), account_id="x")
        b = await submit(app, OcrRequest(), account_id="x")
        seen = []
        for _ in range(4):
            await app.worker().run_once()
            now = await app.store.get_many([a.id, b.id])
            seen.append((now[a.id].status, now[b.id].status))
            clock.advance(timedelta(minutes=1))
    assert seen[:2] == [(Status.SUBMITTED, Status.PENDING_SUBMIT), (Status.RUNNING, Status.PENDING_SUBMIT)]
    assert seen[-1] == (Status.SUCCEEDED, Status.SUBMITTED)


async def test_qps_2(store: Store, clock: ManualClock) -> None:
    """QPS 2: of five tasks two are submitted in the first second, two in the next, and one after that."""
    handler = ocr("ocr")
    submitted = []
    async with App(store, [handler]) as app:
        await app.manager.set_gate(gates.provider("ocr"), rate=Rate(2, timedelta(seconds=1)))
        for _ in range(5):
            await submit(app, OcrRequest())
        for _ in range(3):
            await app.worker(queries=1).run_once()
            submitted.append(len(handler.submitted))
            clock.advance(timedelta(seconds=1))
    assert submitted == [2, 4, 5]
