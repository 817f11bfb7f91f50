"""Replays and comparisons as JSON: over real runs, worked at by processes of their own."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from groundwatch.events import ResponseScored
from groundwatch.gateway.comparing import compare
from groundwatch.gateway.pages import runs as pages
from groundwatch.gateway.replays import Wanted
from groundwatch.replay import service as serving
from groundwatch.replay.runs import Runs
from groundwatch.replay.service import ReplayManager
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.settings import ExtractionSettings, Settings, StageSettings
from groundwatch.runtime.settings.gateway import GatewaySettings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import OUTCOMES, RUNS_BUCKET

TOKENS = "acme acme-token-0123456789\nother other-token-0123456789\n* every-token-0123456789\n"


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}-token-0123456789"}


@pytest.fixture
def desk_of(bus: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A desk with judges that do nothing; its processes find NATS."""
    monkeypatch.delenv("GROUNDWATCH_CONFIG", raising=False)

    def make(processes: int = 1) -> ReplayManager:
        return ReplayManager(
            Settings(
                nats=bus._settings,
                gateway=GatewaySettings(replays=processes),
                extraction=ExtractionSettings(engine="noop"),
                verification=StageSettings(engine="noop"),
                judges={"strict": {"verification": {"engine": "reference"}}},
            )
        )

    return make


class Client:
    """Somebody who asks a gateway for replays."""

    def __init__(self, gateway: Any, headers: dict[str, str]) -> None:
        self.http = gateway.http
        self.headers = headers

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        reply = await self.http.request(method, path, headers=self.headers, **options)
        return reply.status_code, reply.json()

    async def start(self, run: str, **wanted: Any) -> tuple[int, Any]:
        return await self.ask("POST", "/v1/runs", json={"run": run, **wanted})

    async def show(self, run: str) -> tuple[int, Any]:
        return await self.ask("GET", f"/v1/runs/{run}")

    async def cancel(self, run: str) -> tuple[int, Any]:
        return await self.ask("POST", f"/v1/runs/{run}/cancel")

    async def compare(self, first: str, second: str, **query: str) -> tuple[int, Any]:
        return await self.ask("GET", "/v1/compare", params={"first": first, "second": second, **query})

    async def done(self, run: str) -> Any:
        """The run when it is over."""
        async with asyncio.timeout(60):
            while True:
                status, told = await self.show(run)
                assert status == 200
                if told["status"] in ("done", "cancelled"):
                    return told
                await asyncio.sleep(0.1)


async def filled(gateway_factory: Any, manager: ReplayManager, **settings: Any) -> Any:
    """Makes clients of a gateway that keeps replays and has 30 responses."""
    gateway = await gateway_factory(replays=manager, **settings)
    responses = [
        {"id": f"r{number}", "model": "m", "answer": "A dog.", "tenant": ("acme", "other")[number % 2]}
        for number in range(30)
    ]
    lines = b"\n".join(map(msgspec.json.encode, responses))
    headers = {"Content-Type": "application/x-ndjson"} | (bearer("every") if settings else {})
    told = await gateway.http.post("/v1/responses", content=lines, headers=headers)
    assert told.json()["accepted"] == 30

    def client(name: str = "") -> Client:
        return Client(gateway, bearer(name) if name else {})

    return client


async def outcomes(bus: Any, run: str) -> list[ResponseScored]:
    return [
        msgspec.json.decode(read.data, type=ResponseScored)
        async for read in read_stream(bus.js, OUTCOMES, subjects=(f"gw.outcome.{run}.>",))
    ]


async def test_a_replay_is_begun_and_done(gateway_factory, bus, desk_of):
    client = (await filled(gateway_factory, desk_of()))()
    status, begun = await client.start("again", tenants=["acme"])
    assert (status, begun["run"], begun["source"], begun["stage"]) == (201, "again", "live", "extraction")
    assert begun["status"] == "running"
    last = await client.done("again")
    assert (last["status"], last["share"], last["responses"]) == ("done", 1.0, 15)
    assert last["scored"] + last["unscored"] == 15
    found = await outcomes(bus, "again")
    assert len(found) == 15
    assert {one.tenant for one in found} == {"acme"}
    status, told = await client.start("again")
    assert (status, told["reason"], told["field"]) == (409, "run_exists", "run")
    status, told = await client.cancel("again")
    assert (status, told["reason"]) == (409, "over")
    assert [run["run"] for run in (await client.ask("GET", "/v1/runs"))[1]["runs"]] == ["again"]


async def test_a_replay_that_nobody_works_at_is_paused_resumed_and_cancelled(gateway_factory, bus, desk_of):
    client = (await filled(gateway_factory, desk_of(processes=0)))()
    await client.start("never")
    assert (await client.show("never"))[1]["workers"] == 0
    for action, status in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        told = await client.ask("POST", f"/v1/runs/never/{action}")
        assert (told[0], told[1]["status"]) == (200, status)
        assert (await client.show("never"))[1]["status"] == status
    assert (await client.ask("POST", "/v1/runs/never/forget"))[0] == 404
    assert await outcomes(bus, "never") == []


async def test_a_replay_begun_here_is_carried_out_by_the_replay_service(
    gateway_factory, bus, desk_of, monkeypatch
):
    """As in a cluster: the gateway only writes it down, and somebody else's process works at it."""
    monkeypatch.setattr(serving, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(serving, "LOOK_SECONDS", 0.1)
    desk = desk_of(processes=0)
    client = (await filled(gateway_factory, desk))()
    service = serving.ReplayService(desk._settings, bus, Metrics())
    await service.start()
    await client.start("elsewhere")
    last = await client.done("elsewhere")
    await service.drain(10.0)
    assert last["status"] == "done"
    assert len(await outcomes(bus, "elsewhere")) == 30


@pytest.mark.parametrize(
    ("wish", "word"),
    [
        ({"run": ""}, "is missing"),
        ({}, "run"),
        ({"run": "live"}, "live"),
        ({"run": "a b"}, "a b"),
        ({"run": "x", "stage": "thinking"}, "thinking"),
        ({"run": "x", "stage": "captioning"}, "captioning"),
        ({"run": "x", "speed": -1.0}, "speed"),
        ({"run": "x", "sample": 1.5}, "sample"),
        ({"run": "x", "since": 20.0, "until": 10.0}, "the end is not after the beginning"),
        ({"run": "x", "judge": "mild"}, "no judge 'mild' is named in the settings; named are: strict"),
        ({"run": "x", "judge": "\n" * 9_000}, "no judge"),
        # What callers once could: bring settings of their own.
        ({"run": "x", "settings": "[extraction]\nengine = 'llm'"}, "settings"),
        ([], "object"),
    ],
)
async def test_a_wrong_wish_is_told(gateway_factory, desk_of, wish, word):
    gateway = await gateway_factory(replays=desk_of(processes=0))
    reply = await gateway.http.post("/v1/runs", json=wish)
    assert reply.status_code == 422
    assert word in reply.json()["error"]
    assert "/tmp" not in reply.text


async def test_a_caller_chooses_among_the_judges_that_the_settings_name(gateway_factory, bus, desk_of):
    """Worked at by a process of its own, which gets the judges of these settings."""
    client = (await filled(gateway_factory, desk_of()))()
    await client.start("strictly", judge="strict")
    assert (await client.done("strictly"))["status"] == "done"
    judges = {one.judges["verification"].engine for one in await outcomes(bus, "strictly") if one.judges}
    assert judges == {"reference"}


async def test_no_run_sends_a_secret_anywhere(bus, desk_of, monkeypatch):
    """What whoever writes a run's record could: name an address and a key."""
    monkeypatch.setattr(serving, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(serving, "LOOK_SECONDS", 0.1)
    monkeypatch.setenv("SOMEBODYS_SECRET", "sesame-0123456789")
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(65_536))
        writer.close()

    listener = await asyncio.start_server(listen, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    model = {"base_url": address, "model": "m", "api_key_env": "SOMEBODYS_SECRET", "retries": 0}
    desk = desk_of(processes=0)
    await desk.start(Wanted(run="planted"))
    bucket = await bus.js.key_value(RUNS_BUCKET)
    (key,) = [one for one in await bucket.keys() if one.endswith("planted")]
    record = json.loads((await bucket.get(key)).value or b"")
    record["spec"]["settings"] = {"extraction": {"engine": "llm", "llm": model}}
    await bucket.put(key, json.dumps(record).encode())
    service = serving.ReplayService(desk._settings, bus, Metrics())
    await service.start()
    async with asyncio.timeout(60):
        while (await (await Runs.open(bus.js)).get("planted")).status != "done":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await service.drain(10.0)
    assert heard == [] and not service._unable
    listener.close()
    await desk.close()


async def test_a_tenant_replays_its_own_and_ends_no_other(gateway_factory, tmp_path, desk_of):
    path = tmp_path / "tokens"
    path.write_text(TOKENS)
    client = await filled(gateway_factory, desk_of(processes=0), tokens_file=str(path))
    acme = client("acme")
    status, begun = await acme.start("ours")
    assert (status, begun["run"], begun["source"]) == (201, "ours", "live")
    for wish, reason in (({"tenants": ["other"]}, "other_tenant"), ({"judge": "strict"}, "not_for_tenants")):
        status, told = await acme.start("x", **wish)
        assert (status, told["reason"]) == (403, reason)
    assert (await acme.cancel("ours"))[1]["run"] == "ours"


async def test_no_tenant_learns_of_anothers_runs(gateway_factory, tmp_path, desk_of, bus):
    path = tmp_path / "tokens"
    path.write_text(TOKENS)
    client = await filled(gateway_factory, desk_of(processes=0), tokens_file=str(path))
    acme, other, every = map(client, ("acme", "other", "every"))
    await acme.start("secret")
    await every.start("all")
    (kept,) = [run.name for run in await serving.Board(bus).look() if run.name != "all"]
    assert kept.startswith("secret-")

    async def asked(run: str) -> list[tuple[int, str]]:
        told = [
            await other.cancel(run),
            await other.show(run),
            await other.compare("live", run),
            await other.compare(run, "live"),
        ]
        return [(status, str(answer).replace(run, "absent")) for status, answer in told]

    absent = await asked("absent")
    for name in ("secret", "all", kept):
        assert await asked(name) == absent
    assert not any(word in text for _, text in absent for word in ("secret", "all,", "acme", "-t"))
    # A name that somebody else uses is free, and the two runs are two.
    status, theirs = await other.start("secret")
    assert (status, theirs["run"], theirs["status"]) == (201, "secret", "running")
    assert len(await serving.Board(bus).look()) == 3
    status, told = await other.start("secret")
    assert (status, told["error"]) == (409, "run 'secret' exists already")
    assert [run["run"] for run in (await other.ask("GET", "/v1/runs"))[1]["runs"]] == ["secret"]
    assert len((await every.ask("GET", "/v1/runs"))[1]["runs"]) == 3
    # Who may act for all sees both, under names of their own.
    for name in (kept, "all"):
        assert (await every.cancel(name))[0] == 200
    status, told = await other.start("x" * 49)
    assert (status, "at most 48" in told["error"]) == (422, True)
    assert (await other.start("x" * 48))[1]["run"] == "x" * 48


async def test_a_tenants_own_runs_are_found_and_told_by_their_names(gateway_factory, tmp_path, desk_of):
    path = tmp_path / "tokens"
    path.write_text(TOKENS)
    acme = (await filled(gateway_factory, desk_of(processes=1), tokens_file=str(path)))("acme")
    for run in ("first", "second"):
        await acme.start(run)
        told = await acme.done(run)
        assert (told["run"], told["source"], told["status"]) == (run, "live", "done")
    status, found = await acme.compare("first", "second")
    assert (status, found["first"], found["second"]) == (200, "first", "second")
    assert "-t" not in str(found["notes"])


@pytest.mark.parametrize("name", ["x" * 129, "x" * 4_200, "x" * 100_000, "a.b", "*", ">", "a\r\nPUB x 0"])
async def test_what_can_be_no_runs_name_reaches_no_subject(gateway_factory, desk_of, name):
    """A line that is too long makes NATS hang up, and the client never calls again."""
    gateway = await gateway_factory(replays=desk_of(processes=0))
    client = Client(gateway, {})
    for body in (
        {"run": name},
        {"run": "a", "source": name},
        {"run": "a", "stage": name},
        {"run": "a", "protocols": [name]},
    ):
        assert (await client.ask("POST", "/v1/runs", json=body))[0] == 422
    if len(name) < 10_000:
        assert (await client.compare(name, "live"))[0] == 422
        assert (await client.compare("live", name))[0] == 422
        assert (await client.compare("a", "live", protocol=name))[0] == 422
        for path in ("/v1/runs", "/runs"):
            for method, rest in (("POST", "/cancel"), ("GET", "")):
                reply = await gateway.http.request(method, f"{path}/{quote(name, safe='')}{rest}")
                assert reply.status_code == 404
    assert gateway.service.problems() == [] and not gateway.service.notes()
    assert (await gateway.http.get("/healthz")).status_code == 200


async def test_without_anybody_who_keeps_replays_that_is_told(gateway):
    for method in ("GET", "POST"):
        reply = await gateway.http.request(method, "/v1/runs", json={"run": "x"})
        assert reply.status_code == 422
        assert reply.json()["error"] == "this gateway has nobody who keeps replays"


async def test_a_gateway_that_goes_down_lets_go_of_the_replay(gateway_factory, bus, desk_of):
    desk = desk_of()
    client = (await filled(gateway_factory, desk))()
    await client.start("slow", speed=0.000001)
    await desk.close()
    assert not desk._working
    again = desk_of(processes=0)
    found = await again.find("slow")
    assert found is not None
    assert found.status in ("running", "done")
    await asyncio.wait_for(again.close(), 10)


async def test_two_runs_are_compared_as_the_command_does(gateway, bus, publish):
    client = Client(gateway, {})
    for number in range(12):
        await publish(f"r{number}", refuted=1, supported=2)
        await publish(f"r{number}", refuted=number % 3, supported=2, run="again")
    status, told = await client.compare("live", "again")
    assert (status, told) == (200, json.loads(msgspec.json.encode(await compare(bus, "live", "again"))))
    for second in ("", "a b"):
        status, wrong = await client.compare("live", second)
        assert (status, wrong["field"]) == (422, "second")
    status, wrong = await client.compare("live", "none")
    assert status == 422 and "none" in wrong["error"]


async def test_comparisons_have_a_bound(gateway_factory, monkeypatch):
    gateway = await gateway_factory(http={"comparisons": 1})
    client = Client(gateway, {})
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(*_: Any, **__: Any) -> Any:
        begun.set()
        await go_on.wait()
        raise pages.UsageError("nothing to compare")

    monkeypatch.setattr(pages, "compare", slow)
    first = asyncio.ensure_future(client.compare("live", "x"))
    await begun.wait()
    status, told = await client.compare("live", "x")
    assert (status, told["reason"], "1 comparisons" in told["error"]) == (503, "comparisons", True)
    assert (await gateway.http.get("/compare?first=live&second=x")).status_code == 503
    go_on.set()
    assert (await first)[0] == 422
    assert (await client.compare("live", "x"))[0] == 422
