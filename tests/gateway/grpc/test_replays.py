"""Replays through the gRPC door: over real runs, worked at by processes of their own."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import grpc
import msgspec
import pytest
from google.protobuf import json_format

from groundwatch.events import ResponseScored
from groundwatch.gateway.comparing import compare
from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.replays import Wanted
from groundwatch.replay import service as serving
from groundwatch.replay.runs import Run, Runs
from groundwatch.replay.service import ReplayManager
from groundwatch.runtime.delivery.streams import read_stream
from groundwatch.runtime.settings import Settings, StageSettings
from groundwatch.runtime.settings.gateway import GatewaySettings, GrpcSettings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import OUTCOMES

TOKENS = "acme acme-token-0123456789\nother other-token-0123456789\n* every-token-0123456789\n"


def bearer(name: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {name}-token-0123456789"),)


@pytest.fixture
def desk_of(bus: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A desk with judges that do nothing; its processes find NATS."""
    monkeypatch.delenv("GROUNDWATCH_CONFIG", raising=False)

    def make(processes: int = 1) -> ReplayManager:
        return ReplayManager(
            Settings(
                nats=bus._settings,
                gateway=GatewaySettings(grpc=GrpcSettings(replays=processes)),
                extraction=StageSettings(engine="noop"),
                verification=StageSettings(engine="noop"),
                judges={"strict": {"verification": {"engine": "reference"}}},
            )
        )

    return make


async def filled(gateway_factory: Any, stub_factory: Any, desk: ReplayManager, **settings: Any) -> Any:
    """A stub of a gateway that keeps replays and has 30 responses."""
    gateway = await gateway_factory(grpc_port=0, replays=desk, **settings)
    stub = await stub_factory(gateway)
    responses = [
        pb.Response(id=f"r{number}", model="m", answer="A dog.", tenant=("acme", "other")[number % 2])
        for number in range(30)
    ]

    async def requests() -> Any:
        yield pb.SubmitStreamRequest(responses=responses)

    metadata = bearer("every") if settings else ()
    async for told in stub.SubmitStream(requests(), metadata=metadata):
        assert {result.status for result in told.results} == {pb.SUBMIT_STATUS_RECORDED}
    return stub


async def outcomes(bus: Any, run: str) -> list[ResponseScored]:
    return [
        msgspec.json.decode(read.data, type=ResponseScored)
        async for read in read_stream(bus.js, OUTCOMES, subjects=(f"gw.outcome.{run}.>",))
    ]


async def code_of(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


async def test_a_replay_is_begun_followed_and_done(gateway_factory, stub_factory, bus, desk_of):
    stub = await filled(gateway_factory, stub_factory, desk_of())
    begun = await stub.StartReplay(pb.StartReplayRequest(run="again", tenants=["acme"]), timeout=30)
    assert (begun.replay.run, begun.replay.source, begun.replay.stage) == ("again", "live", "extraction")
    assert begun.replay.status == pb.REPLAY_STATUS_RUNNING
    last = begun.replay
    async for told in stub.FollowReplay(pb.FollowReplayRequest(run="again"), timeout=60):
        assert told.replay.share >= last.share
        last = told.replay
    assert last.status == pb.REPLAY_STATUS_DONE
    assert (last.share, last.responses, last.scored + last.unscored) == (1.0, 15, 15)
    found = await outcomes(bus, "again")
    assert len(found) == 15
    assert {one.tenant for one in found} == {"acme"}
    code, told = await code_of(stub.StartReplay(pb.StartReplayRequest(run="again"), timeout=30))
    assert (code, told[:4]) == (grpc.StatusCode.ALREADY_EXISTS, "run:")
    code, _ = await code_of(stub.CancelReplay(pb.CancelReplayRequest(run="again"), timeout=30))
    assert code is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_replay_that_nobody_works_at_can_be_cancelled(gateway_factory, stub_factory, bus, desk_of):
    stub = await filled(gateway_factory, stub_factory, desk_of(processes=0))
    await stub.StartReplay(pb.StartReplayRequest(run="never"), timeout=30)
    following = aiter(stub.FollowReplay(pb.FollowReplayRequest(run="never"), timeout=30))
    first = await anext(following)
    assert (first.replay.status, first.replay.workers) == (pb.REPLAY_STATUS_RUNNING, 0)
    cancelled = await stub.CancelReplay(pb.CancelReplayRequest(run="never"), timeout=30)
    assert cancelled.replay.status == pb.REPLAY_STATUS_CANCELLED
    assert (await anext(following)).replay.status == pb.REPLAY_STATUS_CANCELLED
    assert [told async for told in following] == []
    assert await outcomes(bus, "never") == []


async def test_a_replay_begun_here_is_carried_out_by_the_replay_service(
    gateway_factory, stub_factory, bus, desk_of, monkeypatch
):
    """As in a cluster: the gateway only writes it down, and somebody else's process works at it."""
    monkeypatch.setattr(serving, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(serving, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(serving, "prefer_others", lambda: None)
    desk = desk_of(processes=0)
    stub = await filled(gateway_factory, stub_factory, desk)
    service = serving.ReplayService(desk._settings, bus, Metrics())
    await service.start()
    await stub.StartReplay(pb.StartReplayRequest(run="elsewhere"), timeout=30)
    told = [one async for one in stub.FollowReplay(pb.FollowReplayRequest(run="elsewhere"), timeout=60)]
    await service.drain(10.0)
    assert told[-1].replay.status == pb.REPLAY_STATUS_DONE
    assert len(await outcomes(bus, "elsewhere")) == 30


@pytest.mark.parametrize(
    ("wish", "word"),
    [
        ({"run": ""}, "run:"),
        ({"run": "live"}, "live"),
        ({"run": "a b"}, "a b"),
        ({"run": "x", "stage": "thinking"}, "thinking"),
        ({"run": "x", "stage": "captioning"}, "captioning"),
        ({"run": "x", "speed": -1.0}, "speed:"),
        ({"run": "x", "since": 20.0, "until": 10.0}, "the end is not after the beginning"),
        ({"run": "x", "judge": "mild"}, "no judge 'mild' is named in the settings; named are: strict"),
        ({"run": "x", "judge": "\n" * 9_000}, "no judge"),
    ],
)
async def test_a_wrong_wish_is_told(gateway_factory, stub_factory, desk_of, wish, word):
    gateway = await gateway_factory(grpc_port=0, replays=desk_of(processes=0))
    stub = await stub_factory(gateway)
    code, told = await code_of(stub.StartReplay(pb.StartReplayRequest(**wish), timeout=30))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert word in told
    assert "/tmp" not in told


async def test_a_caller_chooses_among_the_judges_that_the_settings_name(
    gateway_factory, stub_factory, bus, desk_of
):
    """Worked at by a process of its own, which gets the judges of these settings."""
    stub = await filled(gateway_factory, stub_factory, desk_of())
    await stub.StartReplay(pb.StartReplayRequest(run="strictly", judge="strict"), timeout=30)
    told = [one async for one in stub.FollowReplay(pb.FollowReplayRequest(run="strictly"), timeout=60)]
    assert told[-1].replay.status == pb.REPLAY_STATUS_DONE
    judges = {one.judges["verification"].engine for one in await outcomes(bus, "strictly") if one.judges}
    assert judges == {"reference"}


async def test_no_caller_and_no_run_sends_a_secret_anywhere(
    gateway_factory, stub_factory, bus, desk_of, monkeypatch, tmp_path
):
    """What callers once could, and what whoever writes a run's record could: name an address and a key."""
    monkeypatch.setattr(serving, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(serving, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(serving, "prefer_others", lambda: None)
    monkeypatch.setenv("SOMEBODYS_SECRET", "sesame-0123456789")
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(65_536))
        writer.close()

    listener = await asyncio.start_server(listen, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    model = {"base_url": address, "model": "m", "api_key_env": "SOMEBODYS_SECRET", "retries": 0}
    stub = await filled(gateway_factory, stub_factory, desk_of())
    judge = f"{{ base_url = '{address}', model = 'm', api_key_env = 'SOMEBODYS_SECRET' }}"
    toml = f"[extraction]\nengine = 'llm'\nllm = {judge}"
    # The field of old is not among those of the message: its bytes go as a client of old sent them.
    old = pb.StartReplayRequest(run="of-old")
    old.MergeFromString(b"\x82\x01" + bytes([len(toml) & 127 | 128, len(toml) >> 7]) + toml.encode())
    assert toml.encode() in old.SerializeToString()
    await stub.StartReplay(old, timeout=30)
    told = [one async for one in stub.FollowReplay(pb.FollowReplayRequest(run="of-old"), timeout=60)]
    assert told[-1].replay.status == pb.REPLAY_STATUS_DONE
    assert len(await outcomes(bus, "of-old")) == 30
    desk = desk_of(processes=0)
    await desk.start(Wanted(run="planted"))
    runs = await Runs.open(bus.js)

    def planted(run: Run) -> Run:
        settings = run.spec.settings | {"extraction": {"engine": "llm", "llm": model}}
        return msgspec.structs.replace(run, spec=msgspec.structs.replace(run.spec, settings=settings))

    await runs.change("planted", planted)
    service = serving.ReplayService(desk._settings, bus, Metrics())
    await service.start()
    for _ in range(300):
        if service._unable:
            break
        await asyncio.sleep(0.02)
    await service.drain(10.0)
    assert service._unable
    environment = desk._environment()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "groundwatch", "replay", "resume", "planted"),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 2
    assert (said.count(b"\n"), b"(groundwatch replay resume)" in said) == (1, True), said
    assert b"sesame" not in said
    assert heard == []
    assert await outcomes(bus, "planted") == []
    listener.close()
    await desk.close()


async def test_a_run_that_is_not_there_is_told(gateway_factory, stub_factory, desk_of):
    gateway = await gateway_factory(grpc_port=0, replays=desk_of(processes=0))
    stub = await stub_factory(gateway)
    for call in (
        stub.CancelReplay(pb.CancelReplayRequest(run="none"), timeout=30),
        anext(aiter(stub.FollowReplay(pb.FollowReplayRequest(run="none"), timeout=30))),
    ):
        assert (await code_of(call))[0] is grpc.StatusCode.NOT_FOUND


async def test_a_tenant_replays_its_own_and_ends_no_other(gateway_factory, stub_factory, tmp_path, desk_of):
    path = tmp_path / "tokens"
    path.write_text(TOKENS)
    desk = desk_of(processes=0)
    stub = await filled(gateway_factory, stub_factory, desk, tokens_file=str(path))
    acme = {"metadata": bearer("acme"), "timeout": 30}
    begun = (await stub.StartReplay(pb.StartReplayRequest(run="ours"), **acme)).replay
    assert (begun.run, begun.source) == ("ours", "live")
    for call in (
        stub.StartReplay(pb.StartReplayRequest(run="x", tenants=["other"]), **acme),
        stub.StartReplay(pb.StartReplayRequest(run="x", judge="strict"), **acme),
    ):
        assert (await code_of(call))[0] is grpc.StatusCode.PERMISSION_DENIED
    assert (await stub.CancelReplay(pb.CancelReplayRequest(run="ours"), **acme)).replay.run == "ours"


async def test_no_tenant_learns_of_anothers_runs(gateway_factory, stub_factory, tmp_path, desk_of, bus):
    path = tmp_path / "tokens"
    path.write_text(TOKENS)
    desk = desk_of(processes=0)
    stub = await filled(gateway_factory, stub_factory, desk, tokens_file=str(path))
    await stub.StartReplay(pb.StartReplayRequest(run="secret"), metadata=bearer("acme"), timeout=30)
    await stub.StartReplay(pb.StartReplayRequest(run="all"), metadata=bearer("every"), timeout=30)
    (kept,) = [run.name async for run in (await Runs.open(bus.js)).all() if run.name != "all"]
    assert kept.startswith("secret-")

    def calls(run: str) -> list[Any]:
        other = {"metadata": bearer("other"), "timeout": 30}
        return [
            stub.CancelReplay(pb.CancelReplayRequest(run=run), **other),
            anext(aiter(stub.FollowReplay(pb.FollowReplayRequest(run=run), **other))),
            stub.Compare(pb.CompareRequest(first="live", second=run), **other),
            stub.Compare(pb.CompareRequest(first=run, second="live"), **other),
        ]

    absent = [await code_of(call) for call in calls("absent")]
    for name in ("secret", "all", kept):
        told = [await code_of(call) for call in calls(name)]
        assert [(code, text.replace(name, "absent")) for code, text in told] == absent
    assert not any(word in text for _, text in absent for word in ("secret", "all,", "acme", "-t"))
    # A name that somebody else uses is free, and the two runs are two.
    theirs = await stub.StartReplay(pb.StartReplayRequest(run="secret"), metadata=bearer("other"), timeout=30)
    assert (theirs.replay.run, theirs.replay.status) == ("secret", pb.REPLAY_STATUS_RUNNING)
    assert len([run async for run in (await Runs.open(bus.js)).all()]) == 3
    code, told = await code_of(
        stub.StartReplay(pb.StartReplayRequest(run="secret"), metadata=bearer("other"), timeout=30)
    )
    assert (code, told) == (grpc.StatusCode.ALREADY_EXISTS, "run: run 'secret' exists already")
    # Who may act for all sees both, under names of their own.
    for name in (kept, "all"):
        await stub.CancelReplay(pb.CancelReplayRequest(run=name), metadata=bearer("every"), timeout=30)
    code, told = await code_of(
        stub.StartReplay(pb.StartReplayRequest(run="x" * 49), metadata=bearer("other"), timeout=30)
    )
    assert (code, "at most 48" in told) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    long = pb.StartReplayRequest(run="x" * 48)
    assert (await stub.StartReplay(long, metadata=bearer("other"), timeout=30)).replay.run == "x" * 48


async def test_a_tenants_own_source_is_found_and_told_by_its_name(
    gateway_factory, stub_factory, tmp_path, desk_of
):
    path = tmp_path / "tokens"
    path.write_text(TOKENS)
    desk = desk_of(processes=1)
    stub = await filled(gateway_factory, stub_factory, desk, tokens_file=str(path))
    acme = {"metadata": bearer("acme"), "timeout": 60}
    for run, source in (("first", ""), ("second", "")):
        await stub.StartReplay(pb.StartReplayRequest(run=run, source=source), **acme)
        told = [one async for one in stub.FollowReplay(pb.FollowReplayRequest(run=run), **acme)]
        assert {one.replay.run for one in told} == {run}
        assert told[-1].replay.status == pb.REPLAY_STATUS_DONE
    found = await stub.Compare(pb.CompareRequest(first="first", second="second"), **acme)
    assert (found.comparison["first"], found.comparison["second"]) == ("first", "second")
    assert "-t" not in str(found.comparison["notes"])


@pytest.mark.parametrize("name", ["x" * 129, "x" * 4_200, "x" * 100_000, "a.b", "*", ">", "a\r\nPUB x 0"])
async def test_what_can_be_no_runs_name_reaches_no_subject(gateway_factory, stub_factory, desk_of, name):
    """A line that is too long makes NATS hang up, and the client never calls again."""
    gateway = await gateway_factory(grpc_port=0, replays=desk_of(processes=0))
    stub = await stub_factory(gateway)
    invalid, missing = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
    for call, code in (
        (stub.Compare(pb.CompareRequest(first=name, second="live"), timeout=30), invalid),
        (stub.Compare(pb.CompareRequest(first="live", second=name), timeout=30), invalid),
        (stub.Compare(pb.CompareRequest(first="a", second="live", protocol=name), timeout=30), invalid),
        (stub.StartReplay(pb.StartReplayRequest(run=name), timeout=30), invalid),
        (stub.StartReplay(pb.StartReplayRequest(run="a", source=name), timeout=30), invalid),
        (stub.StartReplay(pb.StartReplayRequest(run="a", stage=name), timeout=30), invalid),
        (stub.StartReplay(pb.StartReplayRequest(run="a", protocols=[name]), timeout=30), invalid),
        (stub.CancelReplay(pb.CancelReplayRequest(run=name), timeout=30), missing),
        (anext(aiter(stub.FollowReplay(pb.FollowReplayRequest(run=name), timeout=30))), missing),
        (stub.GetResponse(pb.GetResponseRequest(id=name, tenant=name), timeout=30), missing),
    ):
        assert (await code_of(call))[0] is code
    assert gateway.service.problems() == [] and not gateway.service.notes()
    assert (await gateway.http.get("/healthz")).status_code == 200


async def test_without_anybody_who_keeps_replays_that_is_told(stub):
    code, _ = await code_of(stub.StartReplay(pb.StartReplayRequest(run="x"), timeout=30))
    assert code is grpc.StatusCode.UNIMPLEMENTED


async def test_a_gateway_that_goes_down_lets_go_of_the_replay(gateway_factory, stub_factory, bus, desk_of):
    desk = desk_of()
    stub = await filled(gateway_factory, stub_factory, desk)
    await stub.StartReplay(pb.StartReplayRequest(run="slow", speed=0.000001), timeout=30)
    await desk.close()
    assert not desk._working
    again = desk_of(processes=0)
    found = await again.find("slow")
    assert found is not None
    assert found.status in ("running", "done")
    await asyncio.wait_for(again.close(), 10)


async def test_two_runs_are_compared_as_the_command_does(stub, bus, publish):
    for number in range(12):
        await publish(f"r{number}", refuted=1, supported=2)
        await publish(f"r{number}", refuted=number % 3, supported=2, run="again")
    asked = pb.CompareRequest(first="live", second="again")
    told = json_format.MessageToDict((await stub.Compare(asked, timeout=60)).comparison)
    expected = msgspec.to_builtins(await compare(bus, "live", "again"))
    assert told == json.loads(msgspec.json.encode(expected))
    for wrong in ({"first": "live"}, {"first": "live", "second": "a b"}):
        code, message = await code_of(stub.Compare(pb.CompareRequest(**wrong), timeout=30))
        assert (code, message[:7]) == (grpc.StatusCode.INVALID_ARGUMENT, "second:")
    code, message = await code_of(stub.Compare(pb.CompareRequest(first="live", second="none"), timeout=30))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "none" in message
