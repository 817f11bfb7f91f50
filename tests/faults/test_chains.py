"""Chains under the same knives: kill −9 in every round, and under traffic; every number stays as it was."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
from tests.faults.harness import NATS, SERVICES, System, sending, system
from tests.support import fakes
from tests.support.chains import seed_picture, similarities, store, weighted

from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.local.servers import free_port
from groundwatch.topology import ASKED, parse_subject

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

STAND_INS = {"captioning": fakes.CAPTIONING, "generation": fakes.GENERATION}
LENGTH = 3
SEEDS = [seed_picture(number) for number in range(4)]


@pytest.fixture(scope="module")
def chains() -> Iterator[System]:
    """A system with captioning and generation, whose stand-ins take their time."""
    with system() as started:
        for name, engine in STAND_INS.items():
            child = started.add(name, name, free_port())
            child.environment |= {f"GROUNDWATCH_{name.upper()}__ENGINE": engine, "FAULT_SLOW": "0.05"}
            child.start()
        started.wait_ready(*STAND_INS)
        yield started


def lines(system: System, tenant: str, count: int) -> list[bytes]:
    """As many chains, on four seeds in turn."""

    async def put(bus: Any) -> list[str]:
        return [await store(bus, seed) for seed in SEEDS]

    images = system.ask(put)
    return [
        msgspec.json.encode(
            {
                "id": f"c{number}",
                "tenant": tenant,
                "model": "heron-7b",
                "answer": "",
                "images": [images[number % len(SEEDS)]],
                "protocols": ["genception"],
                "tags": {"t": str(LENGTH)},
            }
        )
        for number in range(count)
    ]


def check(system: System, tenant: str, count: int) -> None:
    """Every chain has the arithmetic's value, every round was once, and the ledger balances."""
    ledger = system.settle()
    assert ledger.balanced and not ledger.in_flight and not ledger.lost, ledger
    found = system.outcomes(tenant)
    assert len(found) == count
    for number in range(count):
        expected = similarities(SEEDS[number % len(SEEDS)], LENGTH)
        outcome = found[f"c{number}"]
        assert outcome["outcome"] == "scored", outcome
        assert [outcome["values"][f"s{t}"] for t in range(1, LENGTH + 1)] == pytest.approx(expected)
        assert outcome["score"] == pytest.approx(weighted(expected))
        assert outcome["usage"]["calls"] == 2 * LENGTH
    assert set(rounds(system).values()) == {1}


def rounds(system: System) -> Counter[tuple[str, str, int]]:
    """How often each chain was sent to each stage in each round."""

    async def read(bus: Any) -> Counter[tuple[str, str, int]]:
        found: Counter[tuple[str, str, int]] = Counter()
        async for message in read_stream(bus.js, ASKED):
            address = parse_subject(message.subject)
            assert address is not None
            found[address.key, address.stage, int(message.subject.rpartition(".")[2])] += 1
        return found

    return system.ask(read)


def send(system: System, sent: Sequence[bytes]) -> None:
    with sending(system, sent):
        pass


@pytest.mark.parametrize("step", range(1, LENGTH + 1))
@pytest.mark.parametrize("victim", STAND_INS)
def test_killed_in_every_round_between_publishing_and_acknowledging(
    chains: System, victim: str, step: int
) -> None:
    child = chains.children[victim]
    # What one that was killed before had in hand would come first, and end this one too early.
    answered_for(chains, victim)
    child.end()
    child.start(FAULT_DIE_BEFORE_ACK=str(step))
    chains.wait_ready(victim)
    tenant = f"{victim}-{step}"
    send(chains, lines(chains, tenant, 1))
    assert child.wait() == -9
    child.start()
    chains.wait_ready(victim)
    check(chains, tenant, 1)


def test_killed_under_traffic_and_the_server_too(chains: System) -> None:
    count = 120
    sent = lines(chains, "traffic", count)
    before = {name: delivered(chains, name) for name in STAND_INS}
    with sending(chains, sent):
        for victim in ("captioning", "generation", "extraction", NATS, "captioning", "generation", "scoring"):
            asyncio.run(asyncio.sleep(0.7))
            chains.kill_and_restart(victim)
            chains.wait_ready(*SERVICES, *STAND_INS)
    check(chains, "traffic", count)
    # They died with work in their hands, or this test proves nothing.
    assert all(delivered(chains, name) > before[name] for name in STAND_INS)


def delivered(system: System, name: str) -> int:
    """How often the consumer has given out a message more than once."""

    async def look(bus: Any) -> int:
        info = await bus.js.consumer_info(ASKED, name)
        sent = (await bus.js.stream_info(ASKED, subjects_filter=f"gw.chain.live.{name}.>")).state.subjects
        return int(info.delivered.consumer_seq + info.num_pending - len(sent or {}))

    return system.ask(look)


def answered_for(system: System, name: str) -> None:
    """Wait until nothing that was given out is left unanswered."""

    async def wait(bus: Any) -> None:
        async with asyncio.timeout(60):
            while (await bus.js.consumer_info(ASKED, name)).num_ack_pending:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    system.ask(wait)
