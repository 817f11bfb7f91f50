"""What services keep of several partitions: letters, budgets, receivers, questions, what watchers saw."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from nats.js.errors import NoKeysError
from tests.partitions.conftest import (
    all_judged,
    numbers,
    reported,
    scored,
    send,
    settings,
    spread,
    until,
)
from tests.support import fakes
from tests.support.receivers import HttpTarget, attributes_of, listening

from groundwatch.errors import GroundwatchError, InputError
from groundwatch.events import ClaimsExtracted
from groundwatch.gateway import budgets
from groundwatch.gateway.budgets import Budget, Spent
from groundwatch.keys import home_of, response_key
from groundwatch.ledger.ledger import audit
from groundwatch.runtime.delivery.dead_letters import dead_letters, send_again
from groundwatch.runtime.settings import CaptioningSettings
from groundwatch.runtime.settings.outflow import OutflowSettings, ReceiverSettings
from groundwatch.system.up import whole_system
from groundwatch.topology import ASKED, BUDGETS_BUCKET, OUTCOMES
from groundwatch.verification.engines.base import NoopVerificationEngine, Verification

pytestmark = pytest.mark.slow

NAMES = [f"r{number}" for number in range(20)]
assert spread(NAMES, 2)


async def test_dead_letters_of_every_partition_are_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:

        async def verify(
            self: object, extracted: Sequence[ClaimsExtracted], protocol: object
        ) -> Sequence[Verification | GroundwatchError]:
            return [InputError("cannot judge this") for _ in extracted]

        broken.setattr(NoopVerificationEngine, "verify", verify)
        async with (
            whole_system(settings(2), tmp_path) as system,
            httpx.AsyncClient(base_url=system.gateway_url) as client,
        ):
            assert {await send(client, name) for name in NAMES} == {"recorded"}
            await until(lambda: all_judged(system, len(NAMES)))
            ledger = await audit(system.bus.js, partitions=2, settle=60.0)
            assert (ledger.unscored, ledger.dead_letters, ledger.balanced) == (20, 20, True)
    async with (
        whole_system(settings(2), tmp_path) as system,
        httpx.AsyncClient(base_url=system.gateway_url) as client,
    ):
        before = await numbers(system, OUTCOMES)
        letters = [letter async for letter in dead_letters(system.bus)]
        assert len(letters) == len(NAMES)
        for letter in letters:
            await send_again(system.bus, letter)

        async def mended() -> bool:
            ledger = await audit(system.bus.js, partitions=2)
            return (ledger.scored, ledger.dead_letters) == (20, 0)

        await until(mended)
        ledger = await audit(system.bus.js, partitions=2, settle=60.0)
        assert (ledger.recorded, ledger.scored, ledger.balanced) == (20, 20, True)
        # Each took the place of the old one, where that was.
        assert await numbers(system, OUTCOMES) == before
        assert await scored(system) == sorted(NAMES)


async def test_budgets_count_each_outcome_of_each_partition_once(tmp_path: Path) -> None:
    async def judged(bucket: Any) -> Counter[str]:
        found: Counter[str] = Counter()
        for key in await bucket.keys():
            if key.startswith("spent"):
                entry = await bucket.get(key)
                found[key] = msgspec.json.decode(entry.value or b"{}", type=Spent).judged
        return found

    wanted = {"spent.b": 0, "spent-p1.b": 0}
    for name in (*NAMES, "later"):
        wanted["spent-p1.b" if home_of(response_key("default", name), 2) else "spent.b"] += 1
    async with (
        whole_system(settings(2), tmp_path) as system,
        httpx.AsyncClient(base_url=system.gateway_url) as client,
    ):
        await budgets.put(system.bus.js, "b", Budget(tokens_per_day=10**9), 2)
        assert {await send(client, name) for name in NAMES} == {"recorded"}
        await until(lambda: all_judged(system, len(NAMES)))
    # A gateway that begins again goes on where each partition was.
    async with (
        whole_system(settings(2), tmp_path) as system,
        httpx.AsyncClient(base_url=system.gateway_url) as client,
    ):
        assert await send(client, "later") == "recorded"
        bucket = await system.bus.js.key_value(BUDGETS_BUCKET)

        async def counted() -> bool:
            return (await judged(bucket)).total() >= len(NAMES) + 1

        await until(counted)
        assert await judged(bucket) == wanted
        (row,) = await budgets.in_use(system.bus.js)
        assert row.name == "b"
        await budgets.remove(system.bus.js, "b", 2)
        with pytest.raises(NoKeysError):
            await bucket.keys()


async def test_a_receiver_is_told_once_of_each_outcome_also_after_a_restart(tmp_path: Path) -> None:
    target = HttpTarget()
    async with listening(target):
        receivers = {"it": ReceiverSettings(kind="otlp-http", url=target.url)}

        def told() -> Counter[str]:
            return Counter(str(attributes_of(record)["gen_ai.response.id"]) for record in target.records)

        sent: list[str] = []
        for start in (1, 2):
            given = settings(2, outflow=OutflowSettings(receivers=receivers))
            async with (
                whole_system(given, tmp_path) as system,
                httpx.AsyncClient(base_url=system.gateway_url) as client,
            ):
                while not all(await numbers(system, OUTCOMES)) or len(sent) < 10 * start:
                    sent.append(f"n{len(sent)}")
                    assert await send(client, sent[-1]) == "recorded"
                    await asyncio.sleep(0.1)

                async def all_told() -> bool:
                    return len(told()) >= len(sent)

                await until(all_told)
        assert told() == Counter(sent)


async def test_questions_are_answered_in_their_partition_and_asked_once(tmp_path: Path) -> None:
    async def ask(client: httpx.AsyncClient, name: str, prompt: str = "What is there?") -> str:
        body = {"id": name, "model": "m", "prompt": prompt, "protocols": ["faithscore"]}
        reply = await client.post("/v1/questions", json=body)
        return str(reply.json().get("status") or reply.json()["reason"])

    given = settings(2, captioning=CaptioningSettings(engine=fakes.CAPTIONING))
    async with (
        whole_system(given, tmp_path) as system,
        httpx.AsyncClient(base_url=system.gateway_url) as client,
    ):
        assert [await ask(client, name) for name in NAMES] == ["recorded"] * 20
        homes = [home_of(response_key("default", name), 2) for name in NAMES]
        assert await numbers(system, ASKED) == [homes.count(0), homes.count(1)]
        await until(lambda: all_judged(system, len(NAMES)))
        assert await numbers(system, OUTCOMES) == [homes.count(0), homes.count(1)]
        assert {await ask(client, name) for name in NAMES} == {"duplicate"}
        assert {await ask(client, name, "What else?") for name in NAMES} == {"conflict"}
        # A question of the same id as a response that was sent.
        assert await send(client, "sent") == "recorded"
        assert await ask(client, "sent") == "conflict"
        ledger = await audit(system.bus.js, partitions=2, settle=60.0)
        assert (ledger.responses, ledger.questions, ledger.balanced) == (21, 0, True)


async def seen(client: httpx.AsyncClient, since: int | None, wanted: set[str]) -> list[tuple[int, str]]:
    """What somebody is shown from a position on, until all of these were, with the position of each."""
    found: list[tuple[int, str]] = []
    position = 0
    params = {} if since is None else {"since": since}
    async with asyncio.timeout(60), client.stream("GET", "/v1/scores", params=params) as reply:
        async for line in reply.aiter_lines():
            if line.startswith("id:"):
                position = int(line[3:])
            elif line.startswith("data:") and "score" in (event := json.loads(line[5:])):
                found.append((position, event["id"]))
                if wanted <= {name for _, name in found}:
                    break
    return found


async def test_who_watches_and_comes_back_misses_nothing_of_any_partition(tmp_path: Path) -> None:
    async with (
        whole_system(settings(2), tmp_path) as system,
        httpx.AsyncClient(base_url=system.gateway_url, timeout=60) as client,
    ):
        assert {await send(client, name) for name in NAMES} == {"recorded"}
        await until(lambda: reported(client, len(NAMES)))
        first = await seen(client, 0, set(NAMES))
        assert Counter(name for _, name in first) == Counter(NAMES)
        for position, _ in (first[0], first[7], first[-1]):
            new = [f"n{position}-{number}" for number in range(6)]
            watching = asyncio.create_task(seen(client, position, set(new)))
            assert {await send(client, name) for name in new} == {"recorded"}
            again = Counter(name for _, name in await watching)
            behind = {name for place, name in first if place > position}
            assert behind | set(new) <= again.keys() and set(again.values()) == {1}
