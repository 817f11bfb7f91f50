"""Replays, erasure, archive and auditor, each as its own user of a real server over TLS: what they need they
may do, and the server's log has no refusal."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tests.e2e.test_secured import log_of, refused, typed
from tests.support.llm_server import LlmServer, picture
from tests.support.llm_server import running as llm_server
from tests.support.secured import Secured, secured

from groundwatch.ledger.ledger import AuditMetrics, audit_once
from groundwatch.models.settings import ChatSettings
from groundwatch.replay import service as serving
from groundwatch.replay.running import begin
from groundwatch.replay.runs import Runs
from groundwatch.replay.spec import Spec
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.services.run import running
from groundwatch.runtime.settings import ArchiveSettings, ExtractionSettings, Settings, StageSettings
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.system.connecting import connected
from groundwatch.system.services import make_service
from groundwatch.topology import AUDITOR, CACHE_BUCKET, COMMAND_LINE, ERASE, OUTCOMES, REPLAY, run_subjects

pytestmark = pytest.mark.slow

PATIENCE = 120.0
TENANTS = ("erasable", "neighbour")


@pytest.fixture(scope="module")
def server() -> Iterator[Secured]:
    with (
        tempfile.TemporaryDirectory(prefix="groundwatch-runs-", ignore_cleanup_errors=True) as folder,
        secured(Path(folder), 2) as started,
    ):
        yield started


@pytest.fixture(scope="module")
def judge() -> Iterator[LlmServer]:
    with llm_server() as one:
        yield one


def settings_of(server: Secured, judge: LlmServer) -> Settings:
    """Judges that cost something, so that the cache has something to keep."""
    chat = ChatSettings(base_url=judge.base_url, model="ok", input_price=1.0, output_price=1.0)
    stage = StageSettings(engine="llm", llm=chat)
    return Settings(
        gateway=GatewaySettings(port=0),
        extraction=ExtractionSettings(**dict(stage)),
        verification=stage,
        archive=ArchiveSettings(url=str(server.auth.parent / "archive"), flush_seconds=0.1),
    )


@contextlib.asynccontextmanager
async def serving_as(server: Secured, settings: Settings, *names: str) -> AsyncIterator[dict[str, Any]]:
    """Services, each on a connection of its own."""
    async with contextlib.AsyncExitStack() as stack:
        started = {}
        for name in names:
            mine = settings.model_copy(update={"nats": server.settings(name)})
            bus = Bus(mine.nats, name=name)
            await bus.connect()
            service = started[name] = make_service(name, mine, bus, Metrics())
            await stack.enter_async_context(running([service], bus))
        yield started


async def until(holds: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not await holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_everybody_does_their_own_work(
    server: Secured, judge: LlmServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = log_of(server)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    for name, seconds in (("GRACE_SECONDS", 0.0), ("LOOK_SECONDS", 0.1)):
        monkeypatch.setattr(serving, name, seconds)
    settings = settings_of(server, judge)
    env = {"OPENAI_API_KEY": "none", "GROUNDWATCH_ARCHIVE__URL": settings.archive.url}
    for stage in ("EXTRACTION", "VERIFICATION"):
        env[f"GROUNDWATCH_{stage}__ENGINE"] = "llm"
        env[f"GROUNDWATCH_{stage}__LLM__BASE_URL"] = judge.base_url
        env[f"GROUNDWATCH_{stage}__LLM__MODEL"] = "ok"

    def type_as(user: str, *arguments: object) -> dict[str, Any]:
        done = typed(server, user)(*arguments, "--json", **env)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = msgspec.json.decode(done.stdout)
        return found

    names = ("gateway", "extraction", "verification", "scoring", "archive")
    async with serving_as(server, settings, *names) as services:
        gateway = services["gateway"]
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
            for tenant in TENANTS:
                sent = await http.post(
                    "/v1/images", content=picture(f"dog ball {tenant}"), headers={"content-type": "image/png"}
                )
                for number in range(3):
                    answer = f"A dog sits beside a ball of {tenant} {'x' * number}."
                    body = {"id": f"r{number}", "tenant": tenant, "model": "heron", "answer": answer}
                    body |= {"images": [sent.json()["sha256"]], "protocols": ["faithscore"]}
                    (await http.post("/v1/responses", json=body)).raise_for_status()
            looker = Bus(server.settings(COMMAND_LINE), name=COMMAND_LINE)
            await looker.connect()

            async def outcomes(run: str, number: int) -> bool:
                subjects = (run_subjects("outcome", run),)
                found = [one async for one in looker.history.read(OUTCOMES, subjects=subjects)]
                return len(found) == number

            await until(lambda: outcomes("live", 6))

            # A replay as typed, from recorded responses and from kept claims; both by the user `replay`.
            told = await asyncio.to_thread(type_as, REPLAY, "replay", "start", "--run", "typed", "--keep")
            assert (told["status"], told["counts"]["scored"]) == ("done", 6)
            assert told["counts"]["usage"]["cached"] == 18 and not told["counts"]["usage"]["cost"]
            # The replay service, beside a gateway that tells of it.
            async with serving_as(server, settings, REPLAY) as replaying:
                worker = replaying[REPLAY]
                spec = Spec(run="served", source="typed", stage="verification")
                spec = msgspec.structs.replace(spec)
                await begin(worker._bus, settings, spec)

                async def over() -> bool:
                    return (await (await Runs.open(worker._bus.js)).get("served")).status == "done"

                await until(over)
                assert worker.problems() == []

            async def shown() -> bool:
                return 'groundwatch_replay_runs{state="done"} 2.0' in (await http.get("/metrics")).text

            await until(shown)

            # The auditor counts live traffic and a run.
            mine = settings.model_copy(update={"nats": server.settings(AUDITOR)})
            for run in ("live", "served"):
                audits = AuditMetrics()
                connect = partial(connected, mine, AUDITOR, user=AUDITOR)
                assert await audit_once(connect, run, audits)
                assert audits.registry.get_sample_value("groundwatch_audit_unaccounted", {"run": run}) == 0
                pairs = audits.registry.get_sample_value
                assert pairs("groundwatch_audit_pairs", {"run": run, "state": "scored"}) == 6

            # An export, and a replay of the file, whose images the user `replay` stores.
            file = server.auth.parent / "export.gwx"
            await asyncio.to_thread(type_as, COMMAND_LINE, "replay", "export", "--out", file)
            told = await asyncio.to_thread(
                type_as, REPLAY, "replay", "start", "--run", "from-file", "--file", file
            )
            assert told["counts"]["scored"] == 6
            compared = await asyncio.to_thread(type_as, COMMAND_LINE, "compare", "live", "from-file")
            assert compared

            gone = await asyncio.to_thread(
                type_as, ERASE, "admin", "erase", "--tenant", TENANTS[0], "--verify", "--yes"
            )
            counts = gone["counts"]
            assert (gone["proof"]["found"], gone["proof"]["unseen"], gone["waiting"]) == ([], [], 0)
            # Of three responses: live, as typed with claims kept, as served, and from the file.
            assert (counts["GW_OUTCOMES"], counts["GW_RESPONSES"]) == (12, 6)
            assert (counts["images"], counts["cache"], counts["export records"]) == (1, 6, 4)
            assert {"GW_EXTRACTED", "GW_JUDGED"} <= counts.keys()
            kept = [
                one
                async for one in read_stream(
                    looker.js, f"KV_{CACHE_BUCKET}", subjects=(f"$KV.{CACHE_BUCKET}.>",)
                )
            ]
            assert len(kept) == 6
            assert await outcomes("live", 3)
            kept_to = await asyncio.to_thread(type_as, ERASE, "admin", "retention")
            assert kept_to["resurrected"] == {}
            removed = await asyncio.to_thread(typed(server, REPLAY), "replay", "delete", "typed", "--yes")
            assert removed.returncode == 0, removed.stderr
            await looker.close()
    assert refused(server, before) == []


@pytest.mark.parametrize(
    ("seed", "command", "wanted"),
    [
        (ERASE, ("replay", "start", "--run", "x"), REPLAY),
        (REPLAY, ("admin", "erase", "--tenant", "t", "--yes"), ERASE),
        (COMMAND_LINE, ("admin", "retention"), ERASE),
        (AUDITOR, ("audit",), COMMAND_LINE),
    ],
)
def test_nobody_does_anothers(server: Secured, seed: str, command: tuple[str, ...], wanted: str) -> None:
    done = typed(server, seed)(*command)
    assert done.returncode == 2
    assert f"is nats.nkey_seed_file the seed of {wanted}" in done.stderr.splitlines()[-1]
