"""Pages are given out and counted once, whoever dies and whatever is said twice."""

from __future__ import annotations

import os
from itertools import pairwise

import msgspec
import psutil
import pytest

from groundwatch.errors import UsageError
from groundwatch.events import Usage
from groundwatch.replay.runs import (
    Counts,
    Run,
    RunGone,
    Runs,
    Worker,
    grown,
    new_run,
    page_of,
    reported,
    take,
    this_worker,
)
from groundwatch.replay.service import Board
from groundwatch.replay.spec import Spec


def worker(name: str, *, host: str = "elsewhere") -> Worker:
    return Worker(id=name, host=host, pid=1, started=0.0)


def run_of(events: int, **spec: object) -> Run:
    return new_run(Spec(run="r", **spec), first=1, last=events)


def test_every_sequence_is_in_one_page() -> None:
    run = run_of(100_000)
    pages = []
    for number in range(10_000):
        run = take(run, worker(str(number)))
        page = page_of(run, worker(str(number)))
        if page is None:
            break
        pages.append((page.first, page.last))
    assert pages[0][0] == 1 and pages[-1][1] == 100_000
    assert all(before[1] + 1 == after[0] for before, after in pairwise(pages))
    assert 8 <= len(pages) <= 32


def test_a_small_run_can_be_shared() -> None:
    run = take(take(run_of(1_000), worker("a")), worker("b"))
    assert page_of(run, worker("a")) and page_of(run, worker("b"))


def test_taking_twice_is_taking_once() -> None:
    run = take(run_of(1_000), worker("a"))
    assert take(run, worker("a")) == run


def test_done_when_all_pages_are() -> None:
    run = take(run_of(50), worker("a"))
    assert take(run, worker("b")).status == "running"
    run = reported(run, worker("a"), 51, Counts(events=50), 1.0)
    assert run.pages == () and run.share == 1.0
    assert take(run, worker("a")).status == "done"


def test_nothing_to_do_is_done() -> None:
    assert take(new_run(Spec(run="r"), first=5, last=4), worker("a")).status == "done"


def test_progress_is_counted_once() -> None:
    run = take(run_of(50), worker("a"))
    once = reported(run, worker("a"), 20, Counts(events=19, scored=3), 1.0)
    twice = reported(once, worker("a"), 20, Counts(events=19, scored=3), 1.0)
    assert once.counts == twice.counts == Counts(events=19, scored=3)
    assert not once.done(20) and once.done(19) and not once.done(51)


def test_a_page_grows_where_nobody_has_what_follows() -> None:
    run = take(run_of(1_000), worker("a"))
    longer = grown(run, worker("a"), 101)
    assert page_of(longer, worker("a")) == msgspec.structs.replace(run.pages[0], last=200)
    both = take(longer, worker("b"))
    assert grown(both, worker("a"), 201) == both
    # Before 900 there is nothing: who has read it all has it all.
    (_, page) = grown(both, worker("b"), 900).pages
    assert (page.first, page.last) == (201, 999)
    whole = grown(both, worker("b"), 1_000)
    assert (whole.next, whole.pages[1].last) == (1_001, 1_000)
    assert grown(whole, worker("b"), 1_000) == whole
    assert grown(whole, worker("c"), 1_000) == whole


def test_a_dead_workers_page_goes_on_where_it_stood() -> None:
    run = take(run_of(50), worker("a"))
    run = reported(run, worker("a"), 20, Counts(events=19), 1.0)
    assert page_of(take(run, worker("b")), worker("b")) is None
    expired = msgspec.structs.replace(
        run, pages=tuple(msgspec.structs.replace(page, expires=0.0) for page in run.pages)
    )
    taken = take(expired, worker("b"))
    page = page_of(taken, worker("b"))
    assert page is not None and (page.at, page.last, page.taken) == (20, 50, 2)
    # The one that was thought dead has nothing more to say.
    assert reported(taken, worker("a"), 51, Counts(events=31), 1.0) == taken


def test_a_process_that_is_gone_is_known_on_this_machine() -> None:
    me = this_worker()
    assert not me.surely_dead()
    assert me.pid == os.getpid()
    assert msgspec.structs.replace(me, started=me.started - 100).surely_dead()
    assert not msgspec.structs.replace(me, started=me.started - 100, host="elsewhere").surely_dead()
    unused = next(pid for pid in range(4_000_000, 5_000_000) if not psutil.pid_exists(pid))
    assert msgspec.structs.replace(me, pid=unused).surely_dead()


def test_a_budget_pauses() -> None:
    spent = Counts(usage=Usage(calls=1, input_tokens=60, output_tokens=50, cost=0.5))
    run = take(run_of(50, max_tokens=100), worker("a"))
    paused = reported(run, worker("a"), 20, spent, 1.0)
    assert paused.status == "paused" and "100 tokens" in paused.reason
    run = take(run_of(50, max_cost=0.25), worker("a"))
    assert "$0.25" in reported(run, worker("a"), 20, spent, 1.0).reason
    assert take(paused, worker("b")) == paused


async def test_the_bucket_knows_every_run(bus, clean_streams: None) -> None:
    runs = await Runs.open(bus.js)
    with pytest.raises(UsageError, match="no run 'r'; there are: none yet"):
        await runs.get("r")
    await runs.create(run_of(10))
    with pytest.raises(UsageError, match="exists already"):
        await runs.create(run_of(10))
    with pytest.raises(UsageError, match="no run 's'; there are: r"):
        await runs.get("s")
    assert [run.name for run in await Board(bus).look()] == ["r"]
    await runs.remove("r")
    with pytest.raises(RunGone):
        await runs.change("r", lambda run: run)
    await runs.create(run_of(20))
    assert (await runs.get("r")).last == 20
