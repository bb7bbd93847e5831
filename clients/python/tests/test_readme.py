"""The programs of the guides run."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import httpx
import pytest
from servers import GENEROUS, Redis, eventually

from locker import (
    Guard,
    HoldOptions,
    IdempotentOptions,
    Limited,
    Locker,
    Lost,
    OnceOptions,
    Settings,
    TimedOut,
)
from locker._decorators import Decorators

ROOT = Path(__file__).parents[3]
README = (ROOT / "clients/python/README.md").read_text()
REFERENCE = (ROOT / "docs/reference/python.md").read_text()
FENCES = (ROOT / "docs/how-to/fence-a-write.md").read_text()
ONCE = (ROOT / "docs/how-to/run-once.md").read_text()
REPEATED = (ROOT / "docs/how-to/repeat-calls.md").read_text()
TESTING = (ROOT / "docs/how-to/test.md").read_text()
MIGRATING = "".join((ROOT / f"docs/how-to/migrate/python-{page}.md").read_text() for page in ("decorator", "locks"))


def blocks(text: str) -> list[str]:
    """Returns the Python programs of a page."""
    return re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


FRAMEWORKS = ("# FastAPI\n", "# Django\n", "# Celery\n")
PROGRAMS = [block for block in blocks(README) if not block.startswith(FRAMEWORKS)]


def module_of(framework: str, redis: Redis) -> types.ModuleType:
    """Runs the program of a framework as a module."""
    (block,) = [block for block in blocks(README) if block.startswith(f"# {framework}\n")]
    module = types.ModuleType(f"of_{framework.lower()}")
    sys.modules[module.__name__] = module
    exec(compile(block.replace("redis://10.0.0.7", redis.url), framework, "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.splitlines()[0][:40])
def test_program_of_the_readme_runs(redis: Redis, program: str) -> None:
    command = [sys.executable, "-W", "error", "-c", program.replace("redis://10.0.0.7", redis.url)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GENEROUS)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("program", [block for block in blocks(MIGRATING) if "import" in block])
def test_program_of_the_migration_guide_runs(redis: Redis, program: str) -> None:
    command = [sys.executable, "-c", program.replace("redis://10.0.0.7", redis.url)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GENEROUS)
    assert done.returncode == 0, done.stderr


def test_program_on_fences_refuses_a_late_write() -> None:
    (program,) = blocks(FENCES)
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GENEROUS)
    assert done.returncode == 0, done.stderr
    refused, balance = done.stdout.splitlines()
    assert refused.startswith("refused: ['lock:alice: lost: ")
    assert balance == "balance: 110"


def lines_of(page: str) -> list[str]:
    """Returns what the only Python program of a page says, which is right."""
    (program,) = blocks(page)
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GENEROUS)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_program_that_runs_once_a_day() -> None:
    reports, invoice, skipped = lines_of(ONCE)
    assert reports == "the report of tenant 7 skipped the report of tenant 8"
    assert invoice.endswith(", after 0 without one")
    assert skipped == "None"


def test_program_that_repeats_calls() -> None:
    assert lines_of(REPEATED) == [
        "30 from account 7",
        "shop.pay was called with another amount",
        "paid 30",
        "paid 30",
    ]


@pytest.mark.parametrize(
    ("page", "of_runs", "decorator"),
    [
        (ONCE[: ONCE.index("## In a crontab")], OnceOptions, Decorators.once_per),
        (REPEATED, IdempotentOptions, Decorators.idempotent),
    ],
    ids=["once_per", "idempotent"],
)
def test_all_options_of_runs_are_in_the_guide(page: str, of_runs: Any, decorator: Any) -> None:
    section = page[page.index("## In Python") :]
    options = of_runs.__optional_keys__ | set(inspect.signature(decorator).parameters)
    options -= {"self", "every", "keep", "options"}
    assert [option for option in options if f"`{option}`" not in section] == []


def test_programs_of_the_testing_guide_pass(tmp_path: Path) -> None:
    (program,) = blocks(TESTING)
    (tmp_path / "test_guide.py").write_text(program)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=GENEROUS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_fastapi(redis: Redis) -> None:
    module: Any = module_of("FastAPI", redis)

    async def main() -> None:
        transport = httpx.ASGITransport(module.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            answer = await client.post("/withdraw/4001", params={"amount": 30})
            assert (answer.status_code, answer.json()) == (200, {"balance": 70})
            guard = await module.locker.lock_on("web.withdraw", 4001).acquire_async()
            answer = await client.post("/withdraw/4001", params={"amount": 30})
            assert (answer.status_code, answer.json()) == (409, {"error": "TimedOut"})
            assert answer.headers["retry-after"] == "1"
            await guard.release_async()

            async def withdraw() -> int:
                # On a busy machine some of 20 wait for longer than the route does.
                while (answer := await client.post("/withdraw/4001", params={"amount": 1})).status_code == 409:
                    pass
                balance: int = answer.json()["balance"]
                return balance

            assert sorted(await asyncio.gather(*(withdraw() for _ in range(20)))) == list(range(50, 70))

    asyncio.run(main())


def test_django(redis: Redis) -> None:
    from django import setup
    from django.conf import settings
    from django.test import Client
    from django.urls import path

    urls = types.ModuleType("urls_of_the_test")
    sys.modules[urls.__name__] = urls
    sqlite = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    settings.configure(ROOT_URLCONF=urls.__name__, DATABASES={"default": sqlite}, ALLOWED_HOSTS=["*"], SECRET_KEY="a")
    setup()
    module: Any = module_of("Django", redis)
    urls.__dict__["urlpatterns"] = [path("transfer/<int:account>", module.transfer)]
    client = Client()
    assert client.post("/transfer/7").json() == {"account": 7}
    other = module.locker.lock_on("bank.transfer", 8).acquire()
    guard = module.locker.lock_on("bank.transfer", 7).acquire()
    assert client.post("/transfer/7").status_code == 503
    guard.release()
    assert client.post("/transfer/7").status_code == 200
    other.release()


def test_celery(redis: Redis) -> None:
    module: Any = module_of("Celery", redis)
    module.app.conf.task_always_eager = True
    assert module.invoice.delay(7).get() == "invoice of order 7"
    with pytest.raises(module.Busy):
        module.busy(TimedOut("another worker has it"))
    with pytest.raises(Lost):
        module.busy(Lost("of the lease"))


def test_error_of_a_lock_inside_of_the_body_names_it(name: str) -> None:
    locker = Locker("memory://", timeout=0)

    @locker.lock_on_argument(name=f"{name}-inner")
    def book() -> None: ...

    @locker.lock_on_argument(name=name, on_error=lambda error: "of the decorator")
    def sell(by_hand: bool) -> None:
        if by_hand:
            locker.lock(f"{name}-2").acquire()
        book()

    with locker.lock(f"{name}-2"), locker.lock_on(f"{name}-inner") as inner:
        for by_hand, of in ((False, (f"{name}-inner", inner.key)), (True, (None, f"lock:{name}-2"))):
            with pytest.raises(TimedOut) as raised:
                sell(by_hand)
            assert (raised.value.function, raised.value.key) == of


WITHOUT_A_URL = """
import logging, queue
from locker import Locker
told = queue.Queue()
handler = logging.Handler()
handler.emit = told.put
logging.getLogger("locker").addHandler(handler)
locker = Locker()
for name in "ab":
    with locker.lock(name):
        assert Locker("memory://").lock(name).try_acquire() is None
assert "locks are kept in memory" in told.get(timeout=30).getMessage()
assert told.empty()
"""


def test_locker_without_a_url_warns_once() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "LOCKER_URL"}
    command = [sys.executable, "-c", WITHOUT_A_URL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GENEROUS, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_all_options_are_in_the_table() -> None:
    table = REFERENCE[REFERENCE.index("Options of `lock_on_argument`") :]
    table = table[: table.index("**Parts**")]
    options: set[str] = set()
    for decorator in ("lock_on_argument", "limit_concurrency", "rate_limit"):
        options |= set(inspect.signature(getattr(Decorators, decorator)).parameters)
    options -= {"self", "size", "per", "options"}
    options |= HoldOptions.__optional_keys__
    assert [option for option in options if f"`{option}" not in table and f"*{option}" not in table] == []


def test_all_options_of_a_locker_are_in_the_table() -> None:
    table = REFERENCE[REFERENCE.index("## The options of a locker") : REFERENCE.index("## The decorators")]
    options = Settings.__optional_keys__
    assert [option for option in options if f"`{option}`" not in table] == []


def test_links_lead_somewhere() -> None:
    links = re.findall(r"https://github\.com/locker-rs/locker/blob/main/([\w/.-]+)(?:#([\w-]+))?\)", README)
    assert len(links) > 5
    for path, anchor in links:
        page = (ROOT / path).read_text()
        headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
        assert not anchor or anchor in anchors, f"{path}#{anchor}"
    for anchor in re.findall(r"\]\(#([\w-]+)\)", README):
        assert re.search(rf"^#+ {anchor.replace('-', ' ')}$", README, re.MULTILINE | re.IGNORECASE), anchor


def test_benchmark_runs() -> None:
    command = [sys.executable, str(ROOT / "clients/python/benches/compare.py"), "--smoke"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=GENEROUS)
    assert done.returncode == 0, done.stderr
    assert "| locker, Redis |" in done.stdout


def test_fastapi_answers_with_the_time_to_come_back(redis: Redis) -> None:
    module: Any = module_of("FastAPI", redis)
    # A limit of 0 has no such time.
    for after, header in ((None, "3600"), (0.1, "1"), (1.2, "2"), (7, "7")):
        answer = asyncio.run(module.refuse(None, Limited("of the limit", retry_after=after)))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, header)


def test_names_of_functions_and_of_locks_are_two_namespaces(url: str, name: str) -> None:
    locker = Locker(url, timeout=0)

    @locker.lock_on_argument(name=name)
    def synchronized() -> None: ...

    with locker.lock(name):
        synchronized()
    with locker.lock_on(name), pytest.raises(TimedOut):
        synchronized()


def test_guard_that_is_kept_holds_as_the_migration_guide_says(url: str, name: str) -> None:
    locker = Locker(url)
    guard = locker.lock(name).acquire()
    seen = locker.inspect(locker.lock(name))
    assert seen is not None
    assert len(seen.holders) == 1
    assert locker.lock(name).try_acquire() is None
    guard.release()
    assert locker.inspect(locker.lock(name)) is None
    tried = locker.lock(name).try_acquire()
    assert tried is not None
    tried.release()


def test_lost_body_that_raises_passes_its_own_error(url: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    locker = Locker(url)

    def work(fails: bool) -> None:
        eventually(lambda: not guards[-1].is_held, "the loss")
        if fails:
            raise KeyError("of the body")

    guards: list[Guard] = []
    for fails, error in ((True, KeyError), (False, Lost)):
        with pytest.raises(error), locker.lock(name, lease=0.05, renew=False) as guard:
            guards.append(guard)
            work(fails)
    assert any("the hold was lost" in record.message for record in caplog.records)
