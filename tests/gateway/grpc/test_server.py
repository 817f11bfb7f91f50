"""What a client meets besides the calls: health, reflection, limits, deadlines, tokens, TLS."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.support.frozen import frozen

from groundwatch.errors import SettingsError, UsageError
from groundwatch.gateway.auth import Tokens
from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.grpc.generated.monitor_pb2_grpc import MonitorServiceStub

SERVICE = "groundwatch.v1.MonitorService"


@contextlib.asynccontextmanager
async def channel_to(gateway: Any, credentials: Any = None) -> AsyncIterator[grpc.aio.Channel]:
    address = f"127.0.0.1:{gateway.service.grpc_port}"
    if credentials is None:
        channel = grpc.aio.insecure_channel(address)
    else:
        channel = grpc.aio.secure_channel(address, credentials)
    async with channel:
        yield channel


def submitted(name: str = "r1", **changes: Any) -> pb.SubmitRequest:
    said = {"id": name, "model": "m", "answer": "A dog."} | changes
    return pb.SubmitRequest(response=pb.Response(**said))


async def code_of(call: Any) -> tuple[grpc.StatusCode, str]:
    """How it fails."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details() or ""


async def test_health_follows_the_gateway(gateway, bus):
    async with channel_to(gateway) as channel:
        health = health_pb2_grpc.HealthStub(channel)

        async def until(status: int) -> None:
            for _ in range(100):
                request = health_pb2.HealthCheckRequest(service=SERVICE)
                found = await health.Check(request, wait_for_ready=True, timeout=10)
                if found.status == status:
                    return
                await asyncio.sleep(0.1)
            raise AssertionError(found)

        await until(health_pb2.HealthCheckResponse.SERVING)
        # What all gateways share is no reason to send nobody to this one.
        await bus.js.delete_stream("GW_RESPONSES")
        await gateway.service.core.backlog.look()
        assert gateway.service.problems() == [] and gateway.service.notes()
        await until(health_pb2.HealthCheckResponse.SERVING)
        await gateway.bus.client.close()
        await until(health_pb2.HealthCheckResponse.NOT_SERVING)


async def test_reflection_tells_the_contract(gateway):
    async with channel_to(gateway) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)

        async def ask(**question: Any) -> Any:
            async def requests() -> Any:
                yield reflection_pb2.ServerReflectionRequest(**question)

            return await anext(aiter(stub.ServerReflectionInfo(requests())))

        services = (await ask(list_services="")).list_services_response.service
        assert {service.name for service in services} >= {SERVICE, "grpc.health.v1.Health"}
        file = (await ask(file_containing_symbol=SERVICE)).file_descriptor_response
        assert pb.DESCRIPTOR.serialized_pb in file.file_descriptor_proto


async def test_a_message_beyond_the_limit_is_refused(gateway_factory, stub_factory):
    gateway = await gateway_factory(grpc_port=0, intake={"max_line": 10_000})
    stub = await stub_factory(gateway)
    code, _ = await code_of(stub.Submit(submitted(answer="x" * 20_000), timeout=10))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    await stub.Submit(submitted(answer="x" * 2_000), timeout=10)


async def test_a_deadline_of_the_caller_ends_the_call_and_not_the_recording(gateway, stub, nats_server):
    with frozen(nats_server.pid):
        code, _ = await code_of(stub.Submit(submitted(), timeout=0.5))
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    for _ in range(100):
        if gateway.count("groundwatch_responses_total", tenant="default", model="m"):
            return
        await asyncio.sleep(0.1)
    raise AssertionError("what was sent was never settled")


async def test_who_sets_no_deadline_has_one(gateway_factory, stub_factory, nats_server):
    gateway = await gateway_factory(grpc_port=0, grpc={"deadline": 0.3})
    stub = await stub_factory(gateway)
    with frozen(nats_server.pid):
        code, told = await code_of(stub.Submit(submitted()))
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "0.3 s" in told


async def test_watchers_are_bounded_and_a_wrong_position_is_told(gateway_factory, stub_factory):
    gateway = await gateway_factory(grpc_port=0, grpc={"watchers": 0})
    stub = await stub_factory(gateway)
    code, told = await code_of(anext(aiter(stub.WatchScores(pb.WatchScoresRequest(after=-1)))))
    assert (code, told[:6]) == (grpc.StatusCode.INVALID_ARGUMENT, "after:")
    code, _ = await code_of(anext(aiter(stub.WatchScores(pb.WatchScoresRequest()))))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_a_gateway_that_goes_down_tells_its_watchers(gateway, stub):
    call = stub.WatchScores(pb.WatchScoresRequest(after=0))
    for _ in range(500):
        if len(gateway.service.core.live.watchers):
            break
        await asyncio.sleep(0.02)
    ended = asyncio.create_task(code_of(anext(aiter(call))))
    await gateway.service.drain(5.0)
    code, told = await asyncio.wait_for(ended, 10)
    assert code is grpc.StatusCode.UNAVAILABLE
    assert "going down" in told


TOKENS = """
# for the tests
acme   acme-token-0123456789
other  other-token-0123456789
*      every-token-0123456789
"""


def bearer(name: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {name}-token-0123456789"),)


@pytest.fixture
async def guarded(gateway_factory, stub_factory, tmp_path: Path) -> Any:
    """A stub of a gateway that wants tokens, and the gateway."""
    path = tmp_path / "tokens"
    path.write_text(TOKENS)
    gateway = await gateway_factory(grpc_port=0, tokens_file=str(path))
    return await stub_factory(gateway), gateway, path


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", "Bearer wrong-token-0123456789"),),
        (("authorization", "Basic acme-token-0123456789"),),
        (("authorization", ""),),
        (("authorization", "Bearer "),),
    ],
)
async def test_without_a_known_token_no_call_is_answered(guarded, metadata):
    stub, gateway, _ = guarded
    calls = (
        stub.Submit(submitted(), metadata=metadata),
        anext(aiter(stub.SubmitStream(iter([pb.SubmitStreamRequest()]), metadata=metadata))),
        anext(aiter(stub.WatchScores(pb.WatchScoresRequest(after=0), metadata=metadata))),
        stub.GetResponse(pb.GetResponseRequest(id="r1"), metadata=metadata),
        stub.GetReport(pb.GetReportRequest(), metadata=metadata),
    )
    for call in calls:
        code, told = await code_of(call)
        assert code is grpc.StatusCode.UNAUTHENTICATED
        assert "token-0123" not in told
    assert await gateway.events() == []


async def test_a_tenant_has_its_own_and_nothing_else(guarded, publish):
    stub, gateway, _ = guarded
    await stub.Submit(submitted(), metadata=bearer("acme"))
    await stub.Submit(submitted(tenant="acme", name="r2"), metadata=bearer("acme"))
    assert {event.tenant for event in await gateway.events()} == {"acme"}
    for call in (
        stub.Submit(submitted(tenant="acme"), metadata=bearer("other")),
        stub.GetResponse(pb.GetResponseRequest(id="r1", tenant="acme"), metadata=bearer("other")),
        anext(aiter(stub.WatchScores(pb.WatchScoresRequest(tenant="acme"), metadata=bearer("other")))),
        stub.GetReport(pb.GetReportRequest(), metadata=bearer("other")),
    ):
        code, _ = await code_of(call)
        assert code is grpc.StatusCode.PERMISSION_DENIED
    code, _ = await code_of(stub.GetResponse(pb.GetResponseRequest(id="r1"), metadata=bearer("other")))
    assert code is grpc.StatusCode.NOT_FOUND
    found = await stub.GetResponse(pb.GetResponseRequest(id="r1", tenant="acme"), metadata=bearer("every"))
    assert found.response.tenant == "acme"
    await publish("theirs", tenant="other")
    await publish("ours", tenant="acme")
    watching = aiter(stub.WatchScores(pb.WatchScoresRequest(after=0), metadata=bearer("acme")))
    assert (await anext(watching)).scored.outcome.id == "ours"


async def test_the_report_is_that_of_http(stub, gateway, publish):
    await publish("r1", refuted=1, supported=3)
    async with asyncio.timeout(20):
        while not (expected := (await gateway.http.get("/v1/report")).json())["models"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    told = json_format.MessageToDict((await stub.GetReport(pb.GetReportRequest(), timeout=10)).report)
    assert told["models"] == expected["models"]
    assert told.keys() == expected.keys()


async def test_another_tenants_response_in_a_stream_does_not_touch_the_others(guarded):
    stub, gateway, _ = guarded
    responses = [submitted("r1").response, submitted("r2", tenant="other").response, submitted("r3").response]
    call = stub.SubmitStream(iter([pb.SubmitStreamRequest(responses=responses)]), metadata=bearer("acme"))
    told = [result async for one in call for result in one.results]
    assert [(result.id, result.reason, result.field) for result in told] == [
        ("r1", "", ""),
        ("r2", "other_tenant", "tenant"),
        ("r3", "", ""),
    ]
    assert [event.id for event in await gateway.events()] == ["r1", "r3"]


async def test_tokens_may_change_while_the_gateway_runs(guarded, monkeypatch):
    stub, _, path = guarded
    monkeypatch.setattr("groundwatch.gateway.auth.LOOK_SECONDS", 0.0)
    path.write_text("acme new-token-0123456789\n")
    os.utime(path, ns=(1, 1))
    assert (await code_of(stub.Submit(submitted(), metadata=bearer("acme"))))[0] is (
        grpc.StatusCode.UNAUTHENTICATED
    )
    await stub.Submit(submitted(), metadata=bearer("new"))
    path.write_text("nothing that holds a token\n")
    os.utime(path, ns=(2, 2))
    await stub.Submit(submitted("r2"), metadata=bearer("new"))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no token"),
        ("acme\n", ":1: write TENANT TOKEN"),
        ("# x\nacme short\n", ":2: a token needs at least 16"),
        ("a same-token-0123456789\nb same-token-0123456789\n", ":2: this token stands there already"),
    ],
)
def test_a_wrong_file_of_tokens_is_told_by_its_line(tmp_path, text, word):
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(SettingsError) as caught:
        Tokens(str(path))
    assert word in str(caught.value)
    assert "0123456789" not in str(caught.value)


def test_a_missing_file_of_tokens_is_told(tmp_path):
    with pytest.raises(SettingsError, match=r"gateway\.tokens_file.*No such file"):
        Tokens(str(tmp_path / "none"))


async def test_over_tls_with_a_certificate_of_ours(gateway_factory, tmp_path):
    from groundwatch.runtime.security.users import certify

    certify(tmp_path, ["127.0.0.1"])
    files = {"tls_cert": str(tmp_path / "server.crt"), "tls_key": str(tmp_path / "server.key")}
    gateway = await gateway_factory(grpc_port=0, grpc=files)
    trusting = grpc.ssl_channel_credentials((tmp_path / "ca.crt").read_bytes())
    async with channel_to(gateway, trusting) as channel:
        told = await MonitorServiceStub(channel).Submit(submitted(), timeout=10)
        assert told.status == pb.SUBMIT_STATUS_RECORDED
    for credentials in (None, grpc.ssl_channel_credentials()):
        async with channel_to(gateway, credentials) as channel:
            code, _ = await code_of(MonitorServiceStub(channel).Submit(submitted("r2"), timeout=3))
            assert code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    assert len(await gateway.events()) == 1


async def test_what_is_no_certificate_is_told(gateway_factory, tmp_path):
    (tmp_path / "x").write_text("no certificate")
    files = {"tls_cert": str(tmp_path / "x"), "tls_key": str(tmp_path / "x")}
    with pytest.raises(SettingsError, match=r"gateway\.grpc\.tls_cert"):
        await gateway_factory(grpc_port=0, grpc=files)
    with pytest.raises(SettingsError, match=r"gateway\.grpc\.tls_key.*cannot read"):
        await gateway_factory(grpc_port=0, grpc=files | {"tls_key": str(tmp_path / "none")})


async def test_a_port_in_use_is_told(gateway, gateway_factory):
    with pytest.raises(UsageError, match=r"gateway\.grpc_port"):
        await gateway_factory(grpc_port=gateway.service.grpc_port)


@pytest.mark.parametrize(
    ("call", "streams"),
    [
        ("groundwatch.v1.MonitorService/Submit", (False, False)),
        ("groundwatch.v1.MonitorService/SubmitStream", (True, True)),
        ("groundwatch.v1.MonitorService/WatchScores", (False, True)),
        ("groundwatch.v1.MonitorService/GetResponse", (False, False)),
    ],
)
async def test_bytes_that_are_no_message_are_refused_in_words(gateway, call, streams):
    for data in (b"\xff" * 20, b"\x0a\x05ab", b"\x0a\x02\xff\xfe"):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.service.grpc_port}") as channel:
            kind = f"{'stream' if streams[0] else 'unary'}_{'stream' if streams[1] else 'unary'}"
            method = getattr(channel, kind)(f"/{call}", lambda one: one, lambda one: one)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                sent = iter([data]) if streams[0] else data
                if streams[1]:
                    async with asyncio.timeout(20):
                        async for _ in method(sent, timeout=20):
                            pass
                else:
                    await method(sent, timeout=20)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, data
            assert "no message of this call" in (caught.value.details() or "")
