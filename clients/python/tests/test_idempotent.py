"""Records with results: of several callers with one key one runs, and the others get its result."""

from __future__ import annotations

import asyncio
import inspect
import logging
import multiprocessing
import os
import re
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from decimal import Decimal
from hashlib import md5
from pathlib import Path
from typing import Any, Literal

import pytest
import trio
import workers
from runs import Body, Call, fence, fence_async, later, others_share_it, plain
from scripts import Script
from servers import GENEROUS, Redis, eventually
from tasks import Run, asyncio_only, for_ever, waiting

from locker import Conflict, Guard, Locker, LockerError, Lost, Misused, OnceKeep, TimedOut, _native
from locker.testing import Control, memory

Testing = tuple[Locker, Control]

NOT_RUN = "the call has run, and its result"


def md5_of(text: str) -> str:
    return md5(text.encode()).hexdigest()


def returning(result: Any) -> Callable[[Guard], Any]:
    """Returns a body that returns this."""
    return lambda run: result


# One runs


@asyncio_only
def test_many_tasks_get_the_result_of_one(every_url: str, name: str, run: Run) -> None:
    locker, runs = Locker(every_url), list[int]()

    @locker.idempotent("1d", args="order", same="amount", name=name, guard="run")
    async def pay(order: int, amount: int, caller: int, *, run: Guard) -> dict[str, Any]:
        runs.append(order)
        await asyncio.sleep(0)
        run.check()
        return {"paid by": caller, "größe": [amount, None]}

    async def main() -> None:
        callers = [(order, caller) for caller in range(4) for order in range(2)]
        results = await asyncio.gather(*(pay(order, 30, caller) for order, caller in callers))
        assert sorted(runs) == [0, 1]
        for order in range(2):
            of_order = [result for (of, _), result in zip(callers, results, strict=True) if of == order]
            assert of_order == [of_order[0]] * 4
            assert await pay(order, 30, caller=9) == of_order[0]
        assert sorted(runs) == [0, 1]

    run(main())


def test_many_threads_get_the_result_of_one(every_url: str, name: str) -> None:
    once = Locker(every_url).once(name).keep("1d")
    start = threading.Barrier(6)

    def caller() -> int:
        start.wait(GENEROUS)
        return once.run(fence)

    with ThreadPoolExecutor(6) as pool:
        results = [made.result(GENEROUS) for made in [pool.submit(caller) for _ in range(6)]]
    assert results == [results[0]] * 6
    assert Locker(every_url).once(name).keep("1h").run(plain) == results[0]
    assert Locker(every_url).once(f"{name}-other").keep("1d").run(lambda run: "other") == "other"


def test_many_processes_get_the_result_of_one(redis: Redis, name: str, tmp_path: Path) -> None:
    path, orders = tmp_path / "orders", 20
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        paid = [pool.submit(workers.pay_once, redis.url, name, str(path), orders) for _ in range(2)]
        one, other = (process.result(GENEROUS) for process in paid)
    assert one == other
    assert sorted(map(int, path.read_text().split())) == list(range(orders))


def test_result_is_kept_for_its_time(locker_testing: Testing, call: Call) -> None:
    locker, control = locker_testing
    once = locker.once("report").keep("2h")
    first = call(once, fence)
    control.advance("1h")
    assert call(once, fence) == first
    control.advance("61m")
    assert call(once, fence) > first


def test_without_keeping_those_that_waited_get_the_result(url: str, name: str) -> None:
    locker, body = Locker(url), Body()
    once = locker.once(name).keep(0)
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(once.run, body)
        assert body.begun.wait(GENEROUS)
        waiters = [pool.submit(once.run, plain) for _ in range(2)]
        eventually(lambda: (seen := locker.inspect(once)) and seen.waiting == 2, "two waiters")
        body.end.set()
        result = first.result(GENEROUS)
        assert [waiter.result(GENEROUS) for waiter in waiters] == [result] * 2
    second = once.run(fence)
    assert second > result
    assert locker.once(name).keep("1d").run(fence) > second


def test_keys_are_those_of_rust(redis: Redis, name: str, call: Call) -> None:
    locker = Locker(redis.url, prefix="shop:")
    once = locker.once(name)
    assert (once.key, once.keep("1d").key) == (f"shop:once:{name}",) * 2
    assert call(once.keep("1d"), lambda run: run.key) == once.key
    assert repr(once.keep("1d")) == f"<locker.OnceKeep {once.key}>"

    @locker.idempotent("1d", args=(0, "month"), same=("card", 2), name=name, guard="run")
    def bill(tenant: int, month: str, amount: int, card: str, *, run: Guard) -> str:
        assert locker.inspect(run.key) is not None
        return run.key

    key = f"shop:{md5_of(name)}:once|{md5_of('7:May')}"
    assert bill(7, "May", 30, card="4:1") == key
    # The digest of what calls have in common is that of Rust, too, and so are the bytes of the result.
    (results,) = redis.client.scan_iter(f"*{key}*:b")
    kept = redis.client.hgetall(results)
    assert f":{md5_of(chr(92).join(('4', ':1')) + ':30')}:" in kept.pop("all")
    assert list(kept.values()) == [f'"{key}"']


@pytest.mark.parametrize("key_format", ["python", "escaped"])
def test_other_values_are_never_taken_for_the_same(name: str, key_format: Literal["python", "escaped"]) -> None:
    once = Locker("memory://", key_format=key_format).once(name)
    assert once.keep("1d", same=("a:b", "c")).run(lambda run: 1) == 1
    with pytest.raises(Conflict):
        once.keep("1d", same=("a", "b:c")).run(plain)


# What calls have in common


def test_other_values_are_a_conflict(url: str, name: str) -> None:
    locker, body = Locker(url), Body()

    def pay(*same: object) -> OnceKeep:
        return locker.once(name).keep("1d", same=same)

    def conflict() -> None:
        for others in ((4001, "200"), ("100", 4001), (4001,), (4001, "100", "")):
            with pytest.raises(Conflict, match="has other arguments that must be the same") as raised:
                pay(*others).run(plain)
            assert raised.value.key == f"once:{name}"

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(pay(4001, "100").run, body)
        assert body.begun.wait(GENEROUS)
        conflict()
        # Parts of keys are texts.
        agreeing = pool.submit(pay("4001", 100).run, plain)
        eventually(lambda: (seen := locker.inspect(pay())) and seen.waiting == 1, "a waiter")
        body.end.set()
        result = first.result(GENEROUS)
        assert agreeing.result(GENEROUS) == result
    conflict()
    assert pay(4001, 100).run(fence) == result
    # It asks for nothing.
    assert pay().run(fence) == result


@asyncio_only
def test_same_has_parts_as_args_have(name: str, run: Run) -> None:
    locker = Locker("memory://")

    class Order:
        def __init__(self, id: int, amount: int) -> None:
            self.id, self.amount = id, amount

        @locker.idempotent("1d", args="self.id", same=("self.amount", "card"), name=name)
        def pay(self, card: str = "4001") -> int:
            """Pays."""
            return self.amount

    @locker.idempotent("1d", key=lambda order, amount, card: order, same=(1, "card"), name=f"{name}-async")
    async def pay(order: int, amount: int, card: str) -> int:
        return amount

    assert [Order(1, 30).pay(), Order(2, 50).pay(), Order(1, 30).pay("4001")] == [30, 50, 30]
    assert [run(pay(1, 30, "4001")), run(pay(2, 50, "4001")), run(pay(1, card="4001", amount=30))] == [30, 50, 30]
    assert Order.pay.__doc__ == "Pays."
    for each in (
        lambda: Order(1, 31).pay(),
        lambda: Order(1, 30).pay("4002"),
        lambda: run(pay(1, 31, "4001")),
        lambda: run(pay(1, 30, "4002")),
    ):
        with pytest.raises(Conflict, match="must be the same") as raised:
            each()
        assert str(raised.value.function).startswith(name)


def test_value_that_cannot_be_compared_is_misused(name: str) -> None:
    locker = Locker("memory://")

    @locker.idempotent("1d", args="order", same=("card", "items"), name=name)
    def pay(order: int, card: str, items: object) -> int:
        raise AssertionError

    why = "pay(): the parameter 'items': a value of type set cannot be part of a key: the order of a set"
    with pytest.raises(Misused, match=re.escape(why)) as raised:
        pay(7, "4001", {1, 2})
    assert raised.value.function == name
    with pytest.raises(Misused, match="a value of type set cannot be part of a key"):
        locker.once(name).keep("1d", same=({1, 2},))


# Results


def test_results_come_back_as_json_reads_them(call: Call, name: str) -> None:
    locker = Locker("memory://")
    results: list[Any] = [None, True, 0, -7, 2**63, 1.5, "", "größe \u2028 😀", [], {"a": [1, {"b": None}]}]
    for at, result in enumerate(results):
        once = locker.once(f"{name}-{at}").keep("1d")
        assert call(once, returning(result)) is result
        again = call(once, plain)
        assert (type(again), again) == (type(result), result)
    once, result = locker.once(name).keep("1d"), {7: (1, 2)}
    assert call(once, returning(result)) is result
    assert call(once, plain) == {"7": [1, 2]}


def test_size_of_a_result_is_that_of_its_text(url: str, name: str, call: Call) -> None:
    locker = Locker(url)

    def run(at: int, bytes: int, **options: Any) -> Any:
        text = "ö" * (bytes // 2 - 1)
        result = call(locker.once(f"{name}-{at}").keep("1d", **options), returning(text))
        assert result == text
        return call(locker.once(f"{name}-{at}").keep("1d"), plain)

    assert len(run(0, 65_536)) == 32_767
    assert len(run(1, 524_288, max_size=524_288)) == 262_143
    assert run(2, 4, max_size=4) == "ö"
    for at, (bytes, options) in enumerate([(81_920, {}), (6, {"max_size": 4}), (600_000, {"max_size": 524_288})]):
        at_most = options.get("max_size", 65_536)
        why = f"{NOT_RUN} of {bytes} bytes was not kept: at most {at_most}"
        with pytest.raises(Conflict, match=re.escape(why)) as raised:
            run(10 + at, bytes, **options)
        assert raised.value.key == f"once:{name}-{10 + at}"


def nested() -> list[Any]:
    """Returns lists in lists, too deep for any program that reads one with the stack."""
    inner: list[Any] = []
    for _ in range(200_000):
        inner = [inner]
    return inner


class Odd(dict[str, int]):
    """What fails in its own way when it is written."""

    def items(self) -> Any:
        raise LookupError("of a test")


@pytest.mark.parametrize(
    "result",
    [{1, 2}, object(), Decimal(1), b"bytes", float("nan"), {"a": [float("inf")]}, {(1, 2): 3}, "\ud800", Odd(a=1)],
    ids=lambda value: type(value).__name__,
)
def test_result_without_a_json_text_is_known(
    url: str, name: str, result: Any, call: Call, caplog: pytest.LogCaptureFixture
) -> None:
    locker = Locker(url)
    once = locker.once(name).keep("1d")
    with caplog.at_level(logging.WARNING, "locker"):
        assert call(once, returning(result)) is result
    assert f"once:{name}: the result was not kept, because it has no JSON text: " in caplog.text
    for _ in range(2):
        with pytest.raises(Conflict, match=f"{NOT_RUN} was not kept: it cannot be read from JSON"):
            call(once, plain)


def test_result_that_is_nested_too_deep_is_known(name: str, caplog: pytest.LogCaptureFixture) -> None:
    once, result = Locker("memory://").once(name).keep("1d"), nested()
    assert once.run(returning(result)) is result
    assert "it has no JSON text" in caplog.text
    with pytest.raises(Conflict, match="it cannot be read from JSON"):
        once.run(plain)


def test_texts_are_those_of_rust(redis: Redis, name: str, call: Call) -> None:
    once = Locker(redis.url).once(name).keep("1d")
    run = call(once, lambda run: ("größe", run.fence, None))
    (results,) = redis.client.scan_iter(f"*once:{name}*:b")
    assert redis.client.hget(results, run[1]) == f'["größe",{run[1]},null]'
    # What serde_json writes for the same in Rust, for a struct, and for a text of any language.
    for text, result in (
        ('["größe",7,null]', ["größe", 7, None]),
        ('{"request":"9f3c","amount":30}', {"request": "9f3c", "amount": 30}),
        ('"\\u2028 \\n"', "\u2028 \n"),
        ("null", None),
    ):
        redis.client.hset(results, run[1], text)
        assert call(once, plain) == result
    for wrong in ("", "[1", "7 7", b"\xff", b"\xff\xfe1\x00", "[" * 200_000, "1" * 5_000):
        redis.client.hset(results, run[1], wrong)
        with pytest.raises(Conflict, match=f"{NOT_RUN} is no JSON text that can be read") as raised:
            call(once, plain)
        assert raised.value.key == once.key
        assert raised.value.__cause__ is None
        assert raised.value.__suppress_context__
    for text, why in (("!81920 65536", "of 81920 bytes was not kept: at most 65536"), ("!", "cannot be read from JSON")):
        redis.client.hset(results, run[1], text)
        with pytest.raises(Conflict, match=why):
            call(once, plain)


def test_record_of_slots_has_no_result(call: Call) -> None:
    locker, _ = memory()
    assert call(locker.once("report").per("366d"), fence) is not None
    with pytest.raises(Conflict, match=f"{NOT_RUN} is no JSON text"):
        call(locker.once("report").keep("1d"), plain)


# Runs without success


@pytest.mark.parametrize("error", [KeyError("a"), TimedOut("of another call"), KeyboardInterrupt(), SystemExit(3)])
def test_failed_run_is_followed_and_not_kept(url: str, name: str, error: BaseException) -> None:
    locker, body = Locker(url), Body()
    once = locker.once(name).keep("1d", lease=60)
    body.error = error
    with ThreadPoolExecutor(2) as pool:
        failing = pool.submit(once.run, body)
        assert body.begun.wait(GENEROUS)
        next = pool.submit(once.run, fence)
        eventually(lambda: (seen := locker.inspect(once)) and seen.waiting == 1, "a waiter")
        body.end.set()
        assert failing.exception(GENEROUS) is error
        kept = next.result(GENEROUS)
    assert once.run(fence) == kept


def test_failed_task_is_followed(url: str, name: str, run: Run) -> None:
    locker, errors = Locker(url), [ZeroDivisionError(), TimedOut("another call"), Conflict("another call")]

    @locker.idempotent("1d", args=(), name=name, lease=60, on_error=lambda error: "refused")
    async def pay(by: int) -> int:
        if errors:
            raise errors.pop(0)
        return by

    async def main() -> None:
        for error in tuple(errors):
            with pytest.raises(type(error)) as raised:
                await pay(0)
            assert raised.value is error
        assert [await pay(1), await pay(2)] == [1, 1]

    run(main())


def test_cancelled_run_is_followed_after_its_body(url: str, name: str, run: Run) -> None:
    locker, steps = Locker(url, lease=60), list[str]()
    once = locker.once(name).keep("1d")

    async def main() -> None:
        begun = asyncio.Event()

        async def body(run: Guard) -> str:
            begun.set()
            try:
                await for_ever()
            finally:
                await waiting(locker, once, 1)
                assert run.is_held
                steps.append("ended")
            return "never"

        async def after(run: Guard) -> str:
            steps.append("next")
            return "next"

        task = asyncio.create_task(once.run_async(body))
        await begun.wait()
        next = asyncio.create_task(once.run_async(after))
        await waiting(locker, once, 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await next == "next"
        assert await once.run_async(after) == "next"

    run(main())
    assert steps == ["ended", "next"]


@others_share_it
@pytest.mark.parametrize("after_crash", ["repeat", "refuse"])
def test_killed_process_is_followed_or_refused(every_url: str, name: str, after_crash: Any) -> None:
    locker = Locker(every_url)
    once = locker.once(name).keep("1d", after_crash=after_crash, timeout=60)
    script = Script(
        every_url,
        name,
        f"""
        def body(run):
            say(run.fence)
            sys.stdin.read()
        locker.once(name).keep("1d", lease=1, after_crash="{after_crash}").run(body)
        """,
    )
    begun = int(script.line())
    with ThreadPoolExecutor(1) as pool:
        next = pool.submit(once.run, fence)
        eventually(lambda: (seen := locker.inspect(once)) and seen.waiting == 1, "a waiter")
        script.process.kill()
        script.end()
        assert script.process.returncode == -signal.SIGKILL
        if after_crash == "repeat":
            result = next.result(GENEROUS)
            assert result > begun
            assert once.run(fence) == result
        else:
            why = "nobody knows whether the run before has succeeded"
            assert why in str(next.exception(GENEROUS))
            with pytest.raises(Lost, match=why):
                once.run(fence)


def test_crash_is_refused_for_as_long_as_a_result_is_kept(locker_testing: Testing, call: Call) -> None:
    locker, control = locker_testing
    once = locker.once("payment").keep("2h", lease=10, renew=False, after_crash="refuse")

    def crash(run: Guard) -> None:
        control.advance(11)
        assert not run.is_held
        raise KeyError

    with pytest.raises(KeyError):
        call(once, crash)
    for _ in range(2):
        with pytest.raises(Lost, match="nobody knows"):
            call(once, fence)
        control.advance("59m")
    control.advance("3m")
    assert call(once, fence) is not None


def test_body_that_was_not_ended_by_itself_is_as_a_crash_if_those_are_refused(locker_testing: Testing, run: Run) -> None:
    locker, control = locker_testing
    refusing = [locker.once(f"{n}").keep("1d", lease=10, after_crash="refuse") for n in range(3)]

    async def cancelled() -> None:
        begun = asyncio.Event()

        async def body(run: Guard) -> None:
            begun.set()
            await for_ever()

        task = asyncio.create_task(refusing[0].run_async(body))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    def interrupted(run: Guard) -> None:
        raise KeyboardInterrupt

    def failed(run: Guard) -> None:
        raise KeyError

    run(cancelled())
    with pytest.raises(KeyboardInterrupt):
        refusing[1].run(interrupted)
    with pytest.raises(KeyError):
        refusing[2].run(failed)
    assert refusing[2].run(fence) is not None, "a failure says so"
    control.advance(11)
    for once in refusing[:2]:
        with pytest.raises(Lost, match="nobody knows"):
            once.run(fence)


def test_function_with_parameters_says_what_tells_its_calls_apart() -> None:
    locker = Locker("memory://")

    def pay(order: int) -> int:
        return order

    with pytest.raises(Misused, match=r"pay\(\): `idempotent` without `args` gives all calls one result"):
        locker.idempotent("1d", name="pay")(pay)
    one = locker.idempotent("1d", name="pay", args=())(pay)
    assert (one(1), one(2)) == (1, 1)
    none = locker.idempotent("1d", name="pay none")(lambda: 3)
    assert (none(), none()) == (3, 3)


def test_forked_child_does_not_end_the_run_of_its_parent(redis: Redis, name: str) -> None:
    once = Locker(redis.url).once(name).keep("1d", timeout=0)
    script = Script(
        redis.url,
        name,
        """
        import logging
        logging.disable()
        def body(run):
            if os.fork() == 0:
                return "child"
            os.wait()
            say(run.is_held)
            sys.stdin.read()
            return "parent"
        parent = os.getpid()
        say(locker.once(name).keep("1d").run(body))
        if os.getpid() != parent:
            os._exit(0)
        """,
    )
    assert [script.line(), script.line()] == ["child", "True"]
    with pytest.raises(TimedOut):
        once.run(fence)
    assert script.end() == "parent"
    assert once.run(lambda run: "again") == "parent"


# Lost runs


def test_lost_run_cancels_the_body(locker_testing: Testing, run: Run) -> None:
    locker, control = locker_testing
    steps: list[str] = []

    @locker.idempotent("1d", args=(), name="payment", guard="run", on_error=type)
    async def pay(fails: bool, run: Guard) -> str:
        if fails:
            assert control.lose(run)
            try:
                await for_ever()
            finally:
                steps.append("ended")
        return "done"

    async def main() -> None:
        assert await pay(True) is Lost
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        assert [await pay(False), await pay(True)] == ["done", "done"]

    run(main())
    assert steps == ["ended"]


def test_plain_body_that_another_has_followed_raises(locker_testing: Testing) -> None:
    locker, control = locker_testing

    @locker.idempotent("1d", args=(), name="payment", guard="run")
    def pay(caller: str, run: Guard) -> str:
        if caller == "first":
            assert control.lose(run)
            assert pay("second") == "second"
        return caller

    with pytest.raises(Lost) as raised:
        pay("first")
    assert raised.value.function == "payment"
    assert pay("third") == "second"


def test_result_is_returned_if_the_store_does_not_answer(
    redis: Redis, name: str, call: Call, caplog: pytest.LogCaptureFixture
) -> None:
    locker = Locker(redis.url, command_timeout=0.2, lease=3)
    once = locker.once(name).keep("1d")

    def body(run: Guard) -> str:
        os.kill(redis.pid, signal.SIGSTOP)
        return "done"

    try:
        with caplog.at_level(logging.WARNING, "locker"):
            assert call(once, body) == "done"
    finally:
        os.kill(redis.pid, signal.SIGCONT)
    assert "release failed" in caplog.text
    # The result is recorded in the background.
    assert call(once, plain) == "done"


def test_trio_runs_and_is_followed(locker_testing: Testing) -> None:
    locker, control = locker_testing
    once = locker.once("payment").keep("1d")
    steps: list[bool] = []

    async def lose(run: Guard) -> int:
        control.lose(run)
        await trio.sleep_forever()

    async def main() -> None:
        begun = trio.Event()

        async def hang(run: Guard) -> int:
            begun.set()
            try:
                await trio.sleep_forever()
            finally:
                steps.append(run.is_held)

        with trio.fail_after(GENEROUS):
            with pytest.raises(Lost):
                await once.run_async(lose)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(once.run_async, hang)
                await begun.wait()
                nursery.cancel_scope.cancel()
            result = await once.run_async(fence_async)
            assert await once.run_async(fence_async) == result

    trio.run(main)
    assert steps == [True]


# Guards


def test_run_cannot_be_released(call: Call, name: str) -> None:
    once = Locker("memory://").once(name).keep("1d")

    def body(run: Guard) -> Any:
        with pytest.raises(Misused, match="a run ends with its body"):
            run.release()
        with pytest.raises(Misused, match="in a body already"), run:
            pass
        assert (run.slot, run.missed) == (None, 0)
        return [run.fence]

    assert call(once, body) == call(once, plain)


def test_guard_is_no_parameter_of_callers() -> None:
    @Locker("memory://").idempotent("1d", args=(), name="payment", guard="run")
    def pay(tenant: int, *, run: Guard) -> bool:
        return run.is_held

    assert list(inspect.signature(pay).parameters) == ["tenant"]
    with pytest.raises(TypeError, match="which its decorator fills in"):
        pay(1, run=None)
    assert pay(1)


# What is refused


def test_call_inside_of_its_run_is_misused(url: str, name: str, run: Run) -> None:
    locker = Locker(url)
    once = locker.once(name).keep("1d")

    @locker.idempotent("1d", args=(), name=name)
    def pay(depth: int) -> None:
        pay(depth + 1)

    async def body(_: Guard) -> None:
        with pytest.raises(Misused, match="would wait for itself"):
            once.run(fence)
        await once.run_async(body)

    with pytest.raises(Misused, match="would wait for itself"):
        pay(1)
    with pytest.raises(Misused) as raised:
        run(once.run_async(body))
    assert raised.value.key == once.key
    assert once.run(fence) is not None


def test_waiter_has_the_timeout_of_the_locker(url: str, name: str) -> None:
    locker, body = Locker(url, timeout=0.01, max_retry=1), Body()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(locker.once(name).keep("1d").run, body)
        assert body.begun.wait(GENEROUS)
        for timeout in (None, 0):
            with pytest.raises(TimedOut) as raised:
                locker.once(name).keep("1d", timeout=timeout).run(plain)
            assert raised.value.key == f"once:{name}"
        second = pool.submit(locker.once(name).keep("1d", timeout=GENEROUS).run, plain)
        eventually(lambda: (seen := locker.inspect(f"once:{name}")) and seen.waiting == 1, "a waiter")
        body.end.set()
        assert first.result(GENEROUS) == second.result(GENEROUS)


@asyncio_only
def test_body_of_the_other_kind_is_refused(run: Run) -> None:
    once = Locker("memory://").once("payment").keep("1d")
    with pytest.raises(Misused, match=re.escape("later(): `run` needs a plain function: await `run_async` instead")):
        once.run(later)
    with pytest.raises(Misused, match=re.escape("plain(): `run_async` needs an async function")):
        run(once.run_async(plain))  # type: ignore[arg-type]


def test_work_that_outlives_the_run_is_no_success(name: str) -> None:
    locker = Locker("memory://")

    @locker.idempotent("1d", args=(), name=name)
    def pay(lazy: bool) -> Any:
        return (n for n in range(3)) if lazy else 3

    with pytest.raises(Misused, match="returned a generator"):
        pay(True)
    assert [pay(False), pay(True)] == [3, 3]


def test_decorator_needs_brackets_and_a_time() -> None:
    locker = Locker("memory://")
    why = "plain(): write the decorator with brackets and a time, @..idempotent('24h')"
    with pytest.raises(Misused, match=re.escape(why)):
        locker.idempotent(plain)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="keep"):
        locker.idempotent()  # type: ignore[call-overload]
    with pytest.raises(Misused, match="keep=None: give seconds"):
        locker.idempotent(None)  # type: ignore[call-overload]


OF_SLOTS = "it is an option of `once_per`"
WAITS = "a call waits for the run of another one, up to `timeout`"
ENDS = "the run ends with the body, and counts if it succeeds"
ONE = "one call runs per `args`, and the others get its result"
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"keep": "11y"}, "keep='11y' is too long: give at most 10 years"),
    ({"keep": -1}, "keep=-1: give seconds"),
    ({"keep": "daily"}, "keep='daily': give seconds"),
    ({"keep": "18446744073709551615s 1000ms"}, "keep='18446744073709551615s 1000ms': give seconds"),
    (
        {"keep": 0, "after_crash": "refuse"},
        "keep 0s forgets a crash at once: keep results, or run again after a crash",
    ),
    ({"max_size": 0}, "max_size 0 is out of range: give 1 to 524288"),
    ({"max_size": 524_289}, "max_size 524289 is out of range: give 1 to 524288"),
    ({"max_size": -1}, "max_size=-1: give a number of bytes from 1 to 524288"),
    ({"max_size": True}, "max_size=True: give a number of bytes from 1 to 524288"),
    ({"max_size": "64k"}, "max_size='64k': give a number of bytes from 1 to 524288"),
    ({"lease": 0}, "lease"),
    ({"timeout": -1}, "timeout=-1: give seconds"),
    ({"after_crash": "never"}, 'after_crash="never": give "repeat" or "refuse"'),
    ({"stop_before": 6}, "stop_before 6s is more than half of the lease 10s"),
    ({"max_hold": 5}, "max_hold 5s is shorter than the lease 10s"),
    ({"max_hold": 20, "min_hold": 21}, "min_hold"),
    *(({option: 3}, f"a run with a result has no option {option}: {WAITS}") for option in ("max_retry", "retry_delay")),
    *(({option: "a"}, f"a run with a result has no option {option}: {ONE}") for option in ("each", "mode")),
    *(({option: "a"}, f"a run with a result has no option {option}: {ENDS}") for option in ("release", "on_lost")),
    *(
        ({option: 3}, f"a run with a result has no option {option}: {OF_SLOTS}")
        for option in ("every", "from_", "early", "on_skip")
    ),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_wrong_option_fails_when_it_is_given(options: dict[str, Any], message: str) -> None:
    locker, options = Locker("memory://", lease=10), {"keep": "1d", **options}
    with pytest.raises(Misused, match=f"^{re.escape(message)}"):
        locker.idempotent(**options)
    with pytest.raises(Misused, match=re.escape(message)):
        locker.once("payment").keep(**options).run(plain)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_error": for_ever}, "plain(): on_error= must take one argument"),
        ({"guard": "lease"}, "plain(): guard='lease': there is no such parameter"),
        ({"args": "tenant"}, "plain(): there is no parameter 'tenant' in plain(run: 'Guard') -> 'None'"),
        ({"same": "tenant"}, "plain(): there is no parameter 'tenant' in plain(run: 'Guard') -> 'None'"),
        ({"same": 1}, "plain(): there is no parameter at position 1"),
        ({"same": 1.5}, "same=1.5: give a position, a name or a path, or several of them as a tuple"),
        ({"same": "run", "guard": "run"}, "plain(): 'run' is the guard"),
        ({"args": 0, "key": len}, "plain(): key= takes the place of the parts [0]"),
        ({"name": ""}, "name='': give at least one character"),
    ],
    ids=str,
)
def test_wrong_decorator_fails_at_decoration(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Misused, match=re.escape(message)):
        Locker("memory://").idempotent("1d", **{"args": (), **options})(plain)


@pytest.mark.parametrize("same", ["4001", b"4001", 4001, {"card": 4001}, None])
def test_values_by_hand_are_several(same: Any) -> None:
    with pytest.raises(Misused, match="same= takes several values: give a tuple"):
        Locker("memory://").once("payment").keep("1d", same=same)


def test_unknown_option_is_a_type_error() -> None:
    locker = Locker("memory://")
    for keep in (locker.idempotent, locker.once("payment").keep):
        with pytest.raises(TypeError, match="there is no option 'leese'"):
            keep("1d", leese=1)  # type: ignore[call-arg, call-overload]


def test_key_of_another_kind_is_a_conflict(url: str, name: str, call: Call) -> None:
    locker = Locker(url)
    other = locker._native.semaphore(_native.Key(locker.once(name).key), 1).wait()
    with pytest.raises(Conflict) as raised:
        call(locker.once(name).keep("1d"), plain)
    assert raised.value.key == f"once:{name}"
    other.release().wait()


@asyncio_only
def test_on_error_gets_why_a_call_has_no_result(name: str, run: Run) -> None:
    locker, inner = Locker("memory://"), list[object]()

    async def told(error: LockerError) -> str:
        return f"{type(error).__name__} of {error.function}"

    # Both have one key.
    @locker.idempotent("1d", args=(), name=name, same=0, timeout=0, max_size=1, on_error=type)
    def plain(value: int) -> Any:
        raise AssertionError

    @locker.idempotent("1d", args=(), name=name, same=0, timeout=0, max_size=1, on_error=told)
    async def later(value: int) -> Any:
        if not inner:
            inner.append(None)
            for other in (value, value + 1):
                inner.append(await asyncio.to_thread(plain, other))
                inner.append(await asyncio.create_task(later(other)))
        return "large"

    assert run(later(7)) == "large"
    assert inner == [None, TimedOut, f"TimedOut of {name}", Conflict, f"Conflict of {name}"]
    assert (plain(7), run(later(7))) == (Conflict, f"Conflict of {name}")
