"""A rate for each tenant: who sends more is told when to come again; nobody else waits."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import grpc
import msgspec
import nats.js.errors
import pytest
from google.rpc import error_details_pb2, status_pb2
from tests.gateway.conftest import Running
from tests.gateway.grpc.test_otlp import failed
from tests.gateway.http.test_litellm import call
from tests.gateway.otlp.made import JSON, PROTOBUF, said, span, traces
from tests.runtime.conftest import eventually

from groundwatch.client.lines import Line
from groundwatch.client.transport import Reply, judge
from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.gateway.grpc.generated.monitor_pb2_grpc import MonitorServiceStub
from groundwatch.gateway.intake.admission import HALVES, IMAGES, Admission
from groundwatch.gateway.receivers import nats as nats_receiver
from groundwatch.gateway.refusals import Refused
from groundwatch.runtime.settings.gateway import AdmissionSettings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import INTAKE

SLOW = {"rate": 0.001, "burst": 3}
"""Nothing comes free while a test runs."""


async def tenants(gateway: Running) -> list[str]:
    return [event.tenant for event in await gateway.events()]


def seconds_to_wait(error: grpc.aio.AioRpcError) -> int:
    """What a call that was refused is told in its `RetryInfo`."""
    status = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    told = error_details_pb2.RetryInfo()
    assert any(detail.Unpack(told) for detail in status.details)
    return told.retry_delay.seconds


async def test_beyond_the_rate_is_429_with_retry_after_and_others_go_on(gateway_factory, response):
    gateway = await gateway_factory(admission=SLOW)
    replies = [await gateway.post(response(tenant="acme")) for _ in range(5)]
    assert [reply.status_code for reply in replies] == [202] * 3 + [429] * 2
    assert replies[-1].json()["reason"] == "rate_limited"
    assert int(replies[-1].headers["Retry-After"]) > 1
    assert (await gateway.post(response(tenant="other"))).status_code == 202
    assert await tenants(gateway) == ["acme"] * 3 + ["other"]
    assert gateway.count("groundwatch_rate_limited_responses_total", tenant="acme") == 2
    assert gateway.count("groundwatch_refused_responses_total", reason="rate_limited") == 2
    assert gateway.service.problems() == [] and gateway.service.notes() == []


async def test_without_a_rate_there_is_no_limit_and_a_tenant_may_have_its_own(gateway_factory, response):
    gateway = await gateway_factory(admission={"tenants": {"acme": {"rate": 0.001, "burst": 1}}})
    sent = [await gateway.post(response(tenant=tenant)) for tenant in ["acme", "acme", *["other"] * 10]]
    assert [reply.status_code for reply in sent] == [202, 429] + [202] * 10


async def test_what_is_there_already_uses_nothing(gateway_factory, response):
    gateway = await gateway_factory(admission=SLOW | {"burst": 2})
    body = response()
    assert (await gateway.post(body)).status_code == 202
    for _ in range(3):
        assert (await gateway.post(body)).json()["status"] == "duplicate"
    assert (await gateway.post(response(protocols=["none"]))).status_code == 422
    assert (await gateway.post(response())).status_code == 202
    assert (await gateway.post(response())).status_code == 429


async def test_lines_beyond_the_rate_are_told_and_those_of_others_taken(gateway_factory, response):
    gateway = await gateway_factory(admission=SLOW)
    of = ["acme"] * 4 + ["other"] + ["acme"]
    lines = b"".join(msgspec.json.encode(response(tenant=tenant)) + b"\n" for tenant in of)
    reply = await gateway.post(lines, bulk=True)
    told = reply.json()
    assert (told["accepted"], told["refused"], told["retry_from"]) == (4, 2, 4)
    assert [one["reason"] for one in told["errors"]] == ["rate_limited"] * 2
    assert int(reply.headers["Retry-After"]) > 1
    # The client keeps what it is to send again, and waits as long as it is told.
    kept = tuple(Line(id=str(number), head=line) for number, line in enumerate(lines.splitlines()))
    verdict = judge(kept, Reply(status=200, body=reply.content, retry_after=7.0))
    assert (len(verdict.left), verdict.refused, verdict.pause) == (2, (), 7.0)


async def test_each_gateway_counts_by_itself(gateway_factory, response):
    gateways = [await gateway_factory(admission=SLOW | {"burst": 4}) for _ in range(2)]
    replies = [await one.post(response()) for one in gateways for _ in range(5)]
    assert [reply.status_code for reply in replies] == [*[202] * 4, 429] * 2


async def test_over_grpc_it_is_resource_exhausted(gateway_factory, response):
    gateway = await gateway_factory(admission=SLOW, grpc_port=0)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{gateway.service.grpc_port}") as channel:
        stub = MonitorServiceStub(channel)
        given = [pb.Response(**response()) for _ in range(6)]
        for one in given[:2]:
            await stub.Submit(pb.SubmitRequest(response=one), timeout=60)
        call_of_many = stub.SubmitStream(iter([pb.SubmitStreamRequest(responses=given[2:])]), timeout=60)
        results = [result async for told in call_of_many for result in told.results]
        assert [result.reason for result in results] == ["", *["rate_limited"] * 3]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Submit(pb.SubmitRequest(response=given[-1]), timeout=60)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert seconds_to_wait(refused.value) > 100


async def test_who_logs_calls_is_told_to_come_again(gateway_factory):
    gateway = await gateway_factory(admission=SLOW | {"burst": 2}, grpc_port=0)
    body = traces(span(said("a" * 20))).SerializeToString()
    assert (await gateway.http.post("/v1/traces", content=body, headers=PROTOBUF)).status_code == 200
    logged = json.dumps([call("b" * 20)])
    assert (await gateway.http.post("/v1/litellm", content=logged, headers=JSON)).status_code == 200

    request = traces(span(said("c" * 20)))
    body = request.SerializeToString()
    traced = await gateway.http.post("/v1/traces", content=body, headers=PROTOBUF)
    logged = json.dumps([call("d" * 20)])
    posted = await gateway.http.post("/v1/litellm", content=logged, headers=JSON)
    assert (traced.status_code, posted.status_code) == (429, 503)
    assert min(int(reply.headers["Retry-After"]) for reply in (traced, posted)) > 100
    assert posted.json()["reason"] == "rate_limited"
    error = await failed(gateway, request)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert seconds_to_wait(error) > 100


async def test_a_batch_that_comes_again_gets_beyond_what_is_there(gateway_factory):
    """What was recorded the time before keeps nothing of the rate from what is new."""
    gateway = await gateway_factory(admission={"rate": 5.0, "burst": 1})
    body = traces(*(span(said(letter * 20)) for letter in "abcdef")).SerializeToString()

    async def taken() -> bool:
        reply = await gateway.http.post("/v1/traces", content=body, headers=PROTOBUF)
        assert reply.status_code in (200, 429)
        return reply.status_code == 200

    await eventually(taken, within=60)
    assert sorted(event.id[0] for event in await gateway.events()) == list("abcdef")


async def test_what_is_published_waits_in_the_stream_and_others_pass(gateway_factory, response, bus):
    gateway = await gateway_factory(admission={"tenants": {"acme": SLOW}})
    for _ in range(30):
        await bus.js.publish("gw.intake.acme", msgspec.json.encode(response()))
    for _ in range(5):
        await bus.js.publish("gw.intake.other", msgspec.json.encode(response()))

    async def passed() -> bool:
        return (await tenants(gateway)).count("other") == 5

    await eventually(passed, within=60)

    async def waiting() -> int:
        return int((await bus.js.stream_info(INTAKE)).state.messages)

    async def settled() -> bool:
        return await waiting() == 27

    await eventually(settled, within=60)
    assert (await tenants(gateway)).count("acme") == 3
    assert gateway.count("groundwatch_dead_letters_total", stage="gateway", reason="bad_input") == 0


async def test_what_waits_is_recorded_when_its_turn_has_come(gateway_factory, response, bus, monkeypatch):
    monkeypatch.setattr(nats_receiver, "AGAIN_SECONDS", 0.1)
    gateway = await gateway_factory(admission={"rate": 2.0, "burst": 1})
    for _ in range(3):
        await bus.js.publish("gw.intake.acme", msgspec.json.encode(response()))

    async def empty() -> bool:
        return not (await bus.js.stream_info(INTAKE)).state.messages

    await eventually(empty, within=60)
    assert await tenants(gateway) == ["acme"] * 3


async def test_one_tenant_cannot_fill_the_stream_of_all(bus, clean_streams):
    config = (await bus.js.stream_info(INTAKE)).config
    assert (config.max_msgs_per_subject, config.discard_new_per_subject) == (20_000, True)
    config.max_msgs_per_subject = 3
    await bus.js.update_stream(config)
    for _ in range(3):
        await bus.js.publish("gw.intake.acme", b"{}")
    with pytest.raises(nats.js.errors.APIError, match="per subject"):
        await bus.js.publish("gw.intake.acme", b"{}")
    await bus.js.publish("gw.intake.other", b"{}")


async def test_a_flood_takes_no_more_than_its_rate_and_nobody_else_is_refused(gateway_factory, response):
    gateway = await gateway_factory(admission={"tenants": {"flood": {"rate": 0.001, "burst": 20}}})
    over = asyncio.Event()
    flooded: list[int] = []

    async def flood() -> None:
        while not over.is_set():
            flooded.append((await gateway.post(response(tenant="flood"))).status_code)

    floods = [asyncio.create_task(flood()) for _ in range(8)]
    others = [(await gateway.post(response(tenant="other"))).status_code for _ in range(20)]
    over.set()
    await asyncio.gather(*floods)
    assert others == [202] * 20
    assert flooded.count(202) == min(20, len(flooded)) and set(flooded) <= {202, 429}


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def admitted(admission: Admission, *about: Any) -> float:
    """0 where it is, else after how many seconds it may be."""
    try:
        admission.admit(*about)
    except Refused as error:
        return error.after
    return 0.0


def test_never_more_than_the_burst_and_what_came_in_since():
    for seed in range(20):
        draw, clock = random.Random(seed), Clock()
        rate, burst = draw.choice([0.5, 4.0, 100.0]), draw.choice([1, 5, 30])
        admission = Admission(AdmissionSettings(rate=rate, burst=burst), Metrics(), clock=clock)
        taken, began = 0, clock.now
        for _ in range(300):
            if draw.random() < 0.2:
                clock.now += draw.random() * 2 / rate
            taken += not admitted(admission, "acme")
            assert taken <= burst + (clock.now - began) * rate + 1e-6, seed
        # Whoever waits as long as the refusal says is taken; nobody has more than the burst.
        while not (after := admitted(admission, "acme")):
            pass
        clock.now += after + 1e-6
        assert not admitted(admission, "acme")
        clock.now += (burst + 1) / rate
        assert [admitted(admission, "acme") for _ in range(burst)] == [0.0] * burst
        assert admitted(admission, "acme")


def test_what_one_sends_takes_nothing_from_other_tenants_and_kinds():
    settings = AdmissionSettings(rate=0.001, burst=1, tenants={"other": {"rate": 0.001, "burst": 2}})
    admission = Admission(settings, Metrics(), most_images=3, clock=Clock())
    assert not admitted(admission, "acme") and admitted(admission, "acme")
    assert [not admitted(admission, "other") for _ in range(3)] == [True, True, False]
    assert not admitted(admission, "acme", HALVES) and admitted(admission, "acme", HALVES)
    assert [not admitted(admission, "acme", IMAGES) for _ in range(4)] == [True, True, True, False]
    admission.give_back("acme")
    admission.give_back("acme")
    assert not admitted(admission, "acme") and admitted(admission, "acme")
