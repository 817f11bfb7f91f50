"""The outflow service over a real server: what becomes of outcomes and alarms whatever a receiver does."""

from __future__ import annotations

import asyncio
import gzip
import socket
from typing import Any

import msgspec
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from starlette.responses import Response
from tests.outflow.conftest import FAST, KEY, SPAN, TRACE, alarm, outcome, publish, unscored
from tests.runtime.conftest import eventually
from tests.support.receivers import HttpTarget, attributes_of, listening

from groundwatch.events import OutcomeKind
from groundwatch.runtime.delivery.dead_letters import DeadLetter, dead_letters, send_again
from groundwatch.runtime.delivery.outcomes import outgoing, replace_dead
from groundwatch.runtime.delivery.provisioning import bind_receiver
from groundwatch.runtime.local.servers import free_port
from groundwatch.topology import OUTCOMES, RETRY, receiver_consumer


async def letters(bus: Any) -> list[DeadLetter]:
    return [letter async for letter in dead_letters(bus)]


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", KEY)
    monkeypatch.setenv("LANGFUSE", "pk-lf-1:sk-lf-2")


def collector(url: str, **more: Any) -> dict[str, Any]:
    return {"kind": "otlp-http", "url": url, **more}


KINDS = ("otlp-http", "langfuse", "phoenix")


def receiver(kind: str, url: str, **more: Any) -> dict[str, Any]:
    """One of a kind that is told of outcomes by HTTP."""
    return {"kind": kind, "url": url, **({"secret_env": "LANGFUSE"} if kind == "langfuse" else {}), **more}


def ids(target: HttpTarget, kind: str) -> set[str]:
    """What it was told of, by the evaluations' ids."""
    match kind:
        case "otlp-http":
            return {attributes_of(record)["groundwatch.evaluation.id"] for record in target.records}
        case "langfuse":
            return {one["id"] for one in target.told}
    return {one["identifier"] for body in target.told for one in body["data"]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "first",
    [
        pytest.param([500], id="an error"),
        pytest.param([Response(status_code=429, headers={"retry-after": "0.2"})], id="a rate limit"),
        pytest.param(["hang"], id="no answer"),
        pytest.param([503, 503, 401, 302], id="away, a wrong key, a redirect"),
    ],
)
async def test_what_passes_loses_nothing(outflow, bus, http_target, kind: str, first: list[Any]) -> None:
    http_target.answers = [*first, 200]
    told = await outflow(it=receiver(kind, http_target.url, timeout=2.0))
    await publish(bus, *(outcome(f"r{at}") for at in range(5)))
    await eventually(told.done, within=30)
    assert len(ids(http_target, kind)) == 5
    assert told.count("sent") == 5 and told.count("refused") == 0
    assert not await letters(bus)
    assert told.away() == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_what_is_refused_goes_to_the_dead_letters_alone(outflow, bus, http_target, kind: str) -> None:
    """One event of a batch that the receiver will never have; the others are told."""

    def answer(body: bytes) -> int:
        data = body
        if kind == "otlp-http":
            data = gzip.decompress(body)
        return 400 if b"bad-one" in data else 200

    http_target.answers = [answer]
    told = await outflow(it=receiver(kind, http_target.url))
    await publish(bus, *(outcome(name) for name in ("a", "bad-one", "b")))
    await eventually(told.done, within=30)
    assert len(ids(http_target, kind)) == 2
    (letter,) = await letters(bus)
    assert letter.protocols == ("it",) and letter.stage == "outflow"
    assert "refuses it: 400: status 400" in letter.reason and letter.reason.startswith("bad_input")
    assert told.count("refused") == 1
    # The outcome itself is what it was.
    assert (await bus.js.stream_info(OUTCOMES)).state.messages == 3
    http_target.answers = [200]
    await send_again(bus, letter)

    async def retried() -> bool:
        info = await bus.js.consumer_info(RETRY, "outflow-retry")
        return bool(info.ack_floor and info.ack_floor.stream_seq >= 1)

    await eventually(retried)
    assert len(ids(http_target, kind)) == 3
    assert not await letters(bus)


async def test_an_event_that_makes_a_receiver_fail_is_given_up(outflow, bus, http_target) -> None:
    http_target.answers = [lambda body: 500 if b"poison" in body else 200]
    told = await outflow(FAST, it=receiver("phoenix", http_target.url))
    await publish(bus, *(outcome(name) for name in ("a", "poison", "b", "c")))
    await eventually(told.done, within=30)
    assert len(ids(http_target, "phoenix")) == 3
    (letter,) = await letters(bus)
    assert letter.reason.startswith("gave_up") and "500" in letter.reason


async def test_a_receiver_that_is_away_is_told_and_holds_up_nobody(outflow, bus, http_target) -> None:
    port = free_port()
    told = await outflow(gone=collector(f"http://127.0.0.1:{port}"), it=collector(http_target.url))
    await publish(bus, *(outcome(f"r{at}") for at in range(50)))
    await eventually(told.done)
    assert len(http_target.records) == 50
    await eventually(told.service.notes)
    (note,) = told.service.notes()
    assert note.startswith("outflow: receiver gone is away since") and "cannot be reached" in note
    assert told.service.problems() == []
    assert told.away("gone") > 0 and told.away() == 0
    back = HttpTarget()
    async with listening(back, port):
        await eventually(lambda: len(back.records) == 50, within=30)
        await eventually(lambda: not told.service.notes())
    assert told.away("gone") == 0
    assert not await letters(bus)


async def test_what_waits_for_a_receiver_is_bounded(outflow, bus) -> None:
    told = await outflow(it=collector(f"http://127.0.0.1:{free_port()}"))
    await publish(bus, *(outcome(f"r{at}") for at in range(300)))
    await eventually(told.service.notes)
    assert 0 < sum(stage.in_flight for stage in told.service._stages) <= 64


async def test_what_waits_is_told_by_receiver_and_a_consumer_that_is_gone(
    outflow, bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groundwatch.runtime.services.service.MONITOR_SECONDS", 0.05)
    told = await outflow(it=collector(f"http://127.0.0.1:{free_port()}"))
    await publish(bus, *(outcome(f"r{at}") for at in range(5)))

    def lag() -> float | None:
        return told.metrics.registry.get_sample_value("groundwatch_receiver_lag", {"receiver": "it"})

    await eventually(lambda: lag() == 5.0)
    assert told.service.problems() == []
    await bus.js.delete_consumer(OUTCOMES, "outflow-to-it")
    await eventually(lambda: any("outflow-to-it does not exist" in one for one in told.service.problems()))


async def test_a_connection_that_is_reset(outflow, bus) -> None:
    resets = 0

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal resets
        await reader.read(100)
        resets += 1
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    port = free_port()
    server = await asyncio.start_server(reset, "127.0.0.1", port)
    told = await outflow(it=receiver("langfuse", f"http://127.0.0.1:{port}", breaker_failures=1))
    await publish(bus, outcome("a"), outcome("b"))
    await eventually(lambda: resets >= 2)
    server.close()
    target = HttpTarget()
    async with listening(target, port):
        await eventually(told.done, within=30)
    assert len(ids(target, "langfuse")) == 2


async def test_a_receiver_with_an_endless_answer(outflow, bus) -> None:
    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n")
        try:
            while True:
                writer.write(b"x" * 65_536)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(pour, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    told = await outflow(it=receiver("langfuse", url))
    await publish(bus, outcome("a"))
    await eventually(told.done)
    assert told.count("sent") == 1
    server.close()


async def test_a_restart_goes_on_where_it_was_and_a_new_receiver_begins_now(
    outflow, bus, http_target, other_target
) -> None:
    first = await outflow(it=collector(http_target.url))
    await publish(bus, outcome("before"))
    await eventually(first.done)
    await first.service.drain(10)
    await publish(bus, outcome("between"))
    second = await outflow(it=collector(http_target.url), new=collector(other_target.url))
    await publish(bus, outcome("after"))
    await eventually(second.done)
    await eventually(lambda: second.done("new"))
    names = [attributes_of(one)["gen_ai.response.id"] for one in http_target.records]
    assert names == ["before", "between", "after"]
    assert [attributes_of(one)["gen_ai.response.id"] for one in other_target.records] == ["after"]


async def test_what_a_collector_takes_in_part_is_not_sent_again(outflow, bus, http_target) -> None:
    rejected = ExportLogsServiceResponse()
    rejected.partial_success.rejected_log_records = 1
    rejected.partial_success.error_message = "too old"
    http_target.answers = [lambda body: Response(rejected.SerializeToString()), 200]
    told = await outflow(it=collector(http_target.url))
    await publish(bus, outcome("a"))
    await eventually(told.done)
    (letter,) = await letters(bus)
    assert "too old" in letter.reason and len(http_target.records) == 1


async def test_a_judged_span_is_the_parent_of_its_evaluation(outflow, bus, http_target, monkeypatch) -> None:
    monkeypatch.setenv("COLLECTOR", "authorization=Bearer token, x-team=birds")
    told = await outflow(it=collector(http_target.url, secret_env="COLLECTOR"))
    odd = {"trace_id": "0" * 32, "span_id": "zz"}
    await publish(bus, outcome("r"), unscored("u", tags=odd), outcome("c", outcome=OutcomeKind.DECLINED))
    await eventually(told.done)
    assert http_target.paths[0] == "/v1/logs"
    assert http_target.headers[0]["authorization"] == "Bearer token"
    assert http_target.headers[0]["x-team"] == "birds"
    records = {attributes_of(one)["gen_ai.response.id"]: one for one in http_target.records}
    assert set(records) == {"r", "u"} and told.count("declined") == 1
    scored, without = records["r"], records["u"]
    assert scored.event_name == without.event_name == "gen_ai.evaluation.result"
    assert (scored.trace_id.hex(), scored.span_id.hex()) == (TRACE, SPAN)
    assert scored.time_unix_nano == 1_700_000_001_500_000_000
    assert (
        attributes_of(scored).items()
        >= {
            "gen_ai.evaluation.name": "faithscore",
            "gen_ai.evaluation.score.value": 0.5,
            "gen_ai.evaluation.score.label": "unfaithful",
            "gen_ai.evaluation.explanation": "1 of 2 decided claims hold. Not in the image: The ball is red.",
            "gen_ai.response.model": "heron-7b",
            "groundwatch.tenant": "default",
            "groundwatch.coverage": 1.0,
        }.items()
    )
    assert "error.type" not in attributes_of(scored)
    assert (without.trace_id, without.span_id) == (b"", b"")
    assert attributes_of(without)["error.type"] == "no_reference"
    assert attributes_of(without)["gen_ai.evaluation.score.label"] == "unscored"
    assert "gen_ai.evaluation.score.value" not in attributes_of(without)


async def test_nothing_of_the_answer_goes_out_where_settings_say_so(outflow, bus, http_target) -> None:
    told = await outflow(it=collector(http_target.url, explanation=False, tenants=["zoo"]))
    await publish(bus, outcome("r", tenant="zoo"), outcome("other", tenant="park"))
    await eventually(told.done)
    (record,) = http_target.records
    assert "ball" not in str(record) and "dog" not in str(record)
    assert attributes_of(record)["groundwatch.tenant"] == "zoo"
    assert told.count("other_tenant") == 1


async def test_scores_of_langfuse(outflow, bus, http_target) -> None:
    told = await outflow(it=receiver("langfuse", http_target.url))
    await publish(bus, outcome("r"), unscored("u"), outcome("no span", tags={}))
    await eventually(told.done)
    assert set(http_target.paths) == {"/api/public/scores"}
    assert http_target.headers[0]["authorization"] == "Basic cGstbGYtMTpzay1sZi0y"
    scores = {one["name"]: one for one in http_target.told}
    assert set(scores) == {"faithscore", "faithscore.unscored"} and told.count("no_span") == 1
    scored = scores["faithscore"]
    assert (scored["traceId"], scored["observationId"]) == (TRACE, SPAN)
    assert (scored["value"], scored["dataType"]) == (0.5, "NUMERIC")
    assert scored["comment"].startswith("1 of 2")
    without = scores["faithscore.unscored"]
    assert (without["value"], without["dataType"]) == ("no_reference", "CATEGORICAL")
    assert without["id"] != scored["id"]


async def test_annotations_of_phoenix(outflow, bus, http_target, tmp_path) -> None:
    (tmp_path / "key").write_text("the-key\n")
    told = await outflow(it=receiver("phoenix", http_target.url, secret_file=str(tmp_path / "key")))
    await publish(bus, outcome("r"))
    await eventually(told.done)
    assert http_target.paths == ["/v1/span_annotations"]
    assert http_target.headers[0]["authorization"] == "Bearer the-key"
    (annotation,) = http_target.told[0]["data"]
    assert annotation.items() >= {"span_id": SPAN, "name": "faithscore", "annotator_kind": "LLM"}.items()
    assert annotation["result"]["score"] == 0.5 and annotation["result"]["label"] == "unfaithful"
    assert len(annotation["identifier"]) == 32


async def test_an_outcome_that_replaces_a_dead_letters_has_its_id(outflow, bus, http_target) -> None:
    told = await outflow(it=receiver("phoenix", http_target.url))
    await publish(bus, unscored("r", reason="dead_letter"))
    await eventually(told.done)
    await replace_dead(bus, outgoing(outcome("r")))
    await eventually(told.done)
    found = [one for body in http_target.told for one in body["data"]]
    assert len(found) == 2 and found[0]["identifier"] == found[1]["identifier"]
    assert found[1]["result"]["score"] == 0.5


async def test_alarms_are_told_to_every_webhook(outflow, bus, http_target) -> None:
    other = HttpTarget()
    async with listening(other):
        other.answers = [500, 200, 200]
        hook = {"kind": "webhook", "secret_env": "HOOK"}
        # One of a version before, whose order of telling was any.
        known = msgspec.structs.replace(receiver_consumer("other", "alarm"), max_ack_pending=1_000)
        await bind_receiver(bus.js, [known], 1)
        told = await outflow(
            it={**hook, "url": http_target.url + "/alarms"},
            other={**hook, "url": other.url, "tenants": ["zoo"]},
        )
        over = alarm("b", tenant="zoo", recovered_at=1_700_000_060.0)
        await publish(bus, alarm("a"), alarm("b", tenant="zoo"), over, outcome("none of theirs"))
        await eventually(told.alarms_done, within=30)
        await eventually(lambda: told.done("other", "GW_ALARMS"), within=30)
    assert [one["data"]["response_id"] for one in http_target.told] == ["a", "b", "b"]
    # Whatever has to be tried again, an alarm is told before its end.
    assert [one["type"].rpartition(".")[2] for one in other.told] == ["raised", "recovered"]
    assert http_target.paths == ["/alarms"] * 3


async def test_a_secret_that_goes_missing_waits_for_the_operator(
    outflow, bus, http_target, monkeypatch
) -> None:
    monkeypatch.delenv("HOOK")
    told = await outflow(it={"kind": "webhook", "url": http_target.url, "secret_env": "HOOK"})
    await publish(bus, alarm("a"))
    await eventually(told.service.notes)
    assert "the variable HOOK is not set" in told.service.notes()[0]
    monkeypatch.setenv("HOOK", KEY)
    await eventually(told.alarms_done, within=30)
    assert len(http_target.told) == 1
    assert not await letters(bus)
