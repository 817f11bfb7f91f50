"""The whole line, each service as a user of its own over TLS: nothing that it needs is missing.

The server's log tells what it refused, whoever asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support import fakes
from tests.support.chains import seed_picture
from tests.support.command_line import CommandLine
from tests.support.secured import Secured, secured

from groundwatch.archive.images import ImageCooling, archived_images
from groundwatch.events import AlarmRaised
from groundwatch.gateway.live.alarms import AlarmPublisher
from groundwatch.keys import home_of, in_partition, response_key
from groundwatch.ledger.ledger import Ledger, audit
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.security.users import CA_CERTIFICATE, seed_file
from groundwatch.runtime.services.run import running
from groundwatch.runtime.settings import (
    ArchiveSettings,
    CaptioningSettings,
    ExtractionSettings,
    Settings,
    StageSettings,
)
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.runtime.stores import images
from groundwatch.runtime.stores.images import ImageStore
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.system.services import STAGES, make_service
from groundwatch.topology import (
    COMMAND_LINE,
    GATEWAY,
    HEADER_PROTOCOLS,
    PROVISIONER,
    subject_of,
)

PATIENCE = 120.0
ANSWER = "A red ball lies beside a small dog. Two cups stand on the table."
REFERENCE = {"objects": ["ball", "dog", "table"]}


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.slow)], ids="in-{}".format)
def server(request: pytest.FixtureRequest) -> Iterator[Secured]:
    with (
        tempfile.TemporaryDirectory(prefix="groundwatch-secured-", ignore_cleanup_errors=True) as folder,
        secured(Path(folder), request.param) as started,
    ):
        yield started


@contextlib.asynccontextmanager
async def line(server: Secured) -> AsyncIterator[httpx.AsyncClient]:
    """Every service on a connection of its own; the gateway's address."""
    settings = Settings(
        gateway=GatewaySettings(port=0),
        captioning=CaptioningSettings(engine=fakes.CAPTIONING),
        generation=StageSettings(engine=fakes.GENERATION),
        extraction=ExtractionSettings(engine="noop"),
        verification=StageSettings(engine="noop"),
        matching=StageSettings(engine="lexical"),
        archive=ArchiveSettings(url=str(server.auth.parent / "archive"), flush_seconds=0.1),
    )
    buses, port = [], 0
    async with contextlib.AsyncExitStack() as stack:
        for name in STAGES:
            mine = settings.model_copy(update={"nats": server.settings(name)})
            bus = Bus(mine.nats, name=name)
            bus.cold_images = archived_images(mine.archive)
            await bus.connect()
            buses.append(bus)
            service = make_service(name, mine, bus, Metrics())
            await stack.enter_async_context(running([service], bus))
            port = getattr(service, "port", 0) or port
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            yield http
        assert [bus.problems() for bus in buses] == [[] for _ in buses]


def typed(server: Secured, user: str = COMMAND_LINE) -> CommandLine:
    """The command line of an operator, or of whoever provisions."""

    class Operator(CommandLine):
        def __call__(self, *arguments: object, **env: str) -> Any:
            given = {
                "GROUNDWATCH_NATS__URL": server.url,
                "GROUNDWATCH_NATS__NKEY_SEED_FILE": str(seed_file(server.auth, user)),
                "GROUNDWATCH_NATS__TLS_CA": str(server.auth / CA_CERTIFICATE),
                "GROUNDWATCH_NATS__PARTITIONS": str(server.partitions),
            }
            return super().__call__(*arguments, **(given | env))

    return Operator(server.auth.parent)


async def settled(server: Secured, recorded: int) -> Ledger:
    """The ledger, once at least so many pairs are in and nothing is on its way."""
    bus, deadline = Bus(server.settings(COMMAND_LINE), name=COMMAND_LINE), time.monotonic() + PATIENCE
    await bus.connect()
    try:
        while True:
            ledger = await audit(bus.js, partitions=bus.partitions)
            if ledger.recorded >= recorded and not ledger.in_flight and not ledger.questions:
                return ledger
            assert time.monotonic() < deadline, ledger
            await asyncio.sleep(0.1)
    finally:
        await bus.close()


async def test_the_whole_line_with_rights_of_its_own(
    server: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = log_of(server)
    cli = typed(server)
    async with line(server) as http:
        picture = seed_picture(1)
        sent = await http.post("/v1/images", content=picture, headers={"content-type": "image/png"})
        sent.raise_for_status()
        image = sent.json()["sha256"]
        # Fetched, so that the gateway reads pieces of the object store too.
        assert (await http.get(f"/v1/images/{image}")).content == picture
        common = {"model": "heron-7b", "images": [image], "reference": REFERENCE}
        protocols = ["faithscore"]
        for number in range(3):
            body = {"id": f"r{number}", "answer": ANSWER, "protocols": protocols} | common
            for status in (201, 200):
                # The second time it is a duplicate, which the gateway looks up.
                answered = await http.post("/v1/responses", json=body)
                assert answered.status_code in (200, 201, 202), (status, answered.text)
        chain = {"id": "c", "answer": "", "protocols": ["genception"], "tags": {"t": "2"}} | common
        (await http.post("/v1/responses", json=chain)).raise_for_status()
        question = {"id": "q", "prompt": "What is there?", "protocols": ["faithscore"]} | common
        (await http.post("/v1/questions", json=question)).raise_for_status()

        ledger = await settled(server, 5)
        assert ledger.balanced and ledger.lost == 0
        assert ledger.scored >= 4, ledger
        assert (await asyncio.to_thread(cli.json, "audit"))["balanced"] is True
        assert (await http.get("/v1/responses/c")).json()["outcomes"]["genception"]["outcome"] == "scored"
        assert (await http.get("/v1/responses/r0")).json()["waiting"] == []

        # What has left the object store is in the archive, and back where a new response names it.
        cooler = Bus(server.settings("archive"), name="archive")
        await cooler.connect()
        place = ArchiveSettings(url=str(server.auth.parent / "archive"), hot_days=1e-9)
        monkeypatch.setattr(images, "GRACE_SECONDS", 0.0)
        await ImageCooling(cooler, place, Metrics()).cool()
        assert cooler.problems() == []
        assert await ImageStore(cooler.js).stored(image) is None
        await cooler.close()
        assert (await http.get(f"/v1/images/{image}")).content == picture

        looker = Bus(server.settings("verification"), name="verification")
        await looker.connect()
        assert (await ImageStore(looker.js, archived_images(place)).load(image))[0] == picture
        await looker.close()

        # A dead letter on every way that it can go.
        garbage = Bus(server.settings(GATEWAY), name=GATEWAY)
        await garbage.connect()
        headers = {HEADER_PROTOCOLS: "faithscore"}
        # In the last partition.
        poison = in_partition("0" * 32, server.partitions - 1)
        await garbage.js.publish(subject_of("recorded", "live", poison), b'{"id": 7}', headers=headers)
        await garbage.close()
        await settled(server, 6)
        assert (await asyncio.to_thread(cli.json, "admin", "dead", "list"))["count"] == 1
        assert (await asyncio.to_thread(cli.json, "admin", "dead", "retry", "--all"))["sent"] == 1
        deadline = time.monotonic() + PATIENCE
        while (await asyncio.to_thread(cli.json, "admin", "dead", "list"))["count"] == 0:
            assert time.monotonic() < deadline
        ledger = await settled(server, 6)
        assert ledger.balanced and ledger.dead_letters == 1

        # And one of matching, which looks up response and outcome for it.
        stranger = Bus(server.settings("extraction"), name="extraction")
        await stranger.connect()
        key = response_key("default", "r0")
        key = in_partition(key, home_of(key, server.partitions))
        await stranger.js.publish(subject_of("extracted", "live", "matching", "faithscore", key), b"{")
        await stranger.close()
        while (await asyncio.to_thread(cli.json, "admin", "dead", "list"))["count"] == 1:
            assert time.monotonic() < deadline + PATIENCE
        assert (await settled(server, 6)).balanced

        assert "heron-7b" in (await asyncio.to_thread(cli, "report", "--json")).stdout
        unchanged = await asyncio.to_thread(typed(server, PROVISIONER).json, "admin", "provision")
        assert set(unchanged.values()) == {"unchanged"}
        assert (await http.get("/readyz")).status_code == 200
        assert (await http.get("/v1/alarms")).status_code == 200
    assert refused(server, before) == []


async def test_an_alarm_is_announced(server: Secured) -> None:
    before = log_of(server)
    settings = Settings(nats=server.settings(GATEWAY))
    bus = Bus(settings.nats, name=GATEWAY)
    await bus.connect()
    desk = AlarmPublisher(settings.alarm, bus, Metrics())
    alarm = AlarmRaised(model="m", protocol="faithscore", category="all", base=0.1, after=0.4, raised_at=1.0)
    await desk._announce(alarm)
    assert (await desk._last(f"gw.alarm.live.faithscore.{alarm.key}"))[1] == alarm
    assert bus.problems() == []
    await bus.close()
    assert refused(server, before) == []


@pytest.mark.parametrize(
    ("seed", "command", "wanted"),
    [
        ("matching", ("serve", "scoring"), "scoring"),
        ("scoring", ("audit",), "cli"),
        ("cli", ("admin", "provision"), "provision"),
    ],
)
def test_another_users_seed_is_refused_with_what_and_why(
    server: Secured, seed: str, command: tuple[str, ...], wanted: str
) -> None:
    done = typed(server, seed)(*command)
    assert done.returncode == 2
    said = done.stderr.splitlines()[-1]
    assert said.startswith("groundwatch: ")
    assert "NATS does not let this user subscribe to _INBOX_" in said
    assert f"is nats.nkey_seed_file the seed of {wanted}" in said


def log_of(server: Secured) -> list[str]:
    """The server's log so far. Other tests are refused on purpose."""
    return (server.auth.parent / "nats.log").read_text().splitlines()


def refused(server: Secured, before: Sequence[str]) -> list[str]:
    """What the server's log says it refused since then."""
    return [line for line in log_of(server)[len(before) :] if "Violation" in line]
