"""What holds at every door: the same cases over HTTP and gRPC."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import grpc
import msgspec
import pytest

from groundwatch.events import Box, Decision, Earlier, JudgedClaim
from groundwatch.gateway.grpc.generated import monitor_pb2 as pb
from groundwatch.runtime.delivery import history

STATUSES = {
    "malformed": (422, "INVALID_ARGUMENT"),
    "invalid": (422, "INVALID_ARGUMENT"),
    "too_large": (413, "INVALID_ARGUMENT"),
    "unknown_protocol": (422, "INVALID_ARGUMENT"),
    "image": (422, "INVALID_ARGUMENT"),
    "image_missing": (422, "FAILED_PRECONDITION"),
    "image_not_allowed": (422, "INVALID_ARGUMENT"),
    "image_not_fetched": (422, "INVALID_ARGUMENT"),
    "image_unavailable": (503, "UNAVAILABLE"),
    "conflict": (409, "ALREADY_EXISTS"),
    "backlog": (503, "RESOURCE_EXHAUSTED"),
    "unavailable": (503, "UNAVAILABLE"),
    "unconfirmed": (503, "UNAVAILABLE"),
    "unauthenticated": (401, "UNAUTHENTICATED"),
    "other_tenant": (403, "PERMISSION_DENIED"),
}


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """How sending a response ended: `how` is recorded, duplicate, or the reason of a refusal."""

    how: str
    id: str = ""
    field: str = ""
    message: str = ""
    again: bool = False


class Client(Protocol):
    """One door from outside."""

    async def submit(self, said: dict[str, Any]) -> Told: ...

    async def submit_many(self, said: list[dict[str, Any]]) -> list[str]: ...

    async def get(self, name: str, tenant: str = "") -> dict[str, Any] | None: ...

    def watch(self, after: int | None = None, **wanted: str) -> AsyncIterator[tuple[int, str]]: ...


class OverHttp:
    def __init__(self, gateway: Any, token: str = "") -> None:
        self._http = gateway.http
        if token:
            self._http.headers["Authorization"] = f"Bearer {token}"

    async def submit(self, said: dict[str, Any]) -> Told:
        reply = await self._http.post("/v1/responses", json=_encoded(said))
        told = reply.json()
        if reply.status_code in (200, 202):
            return Told(how=told["status"], id=told["id"])
        assert reply.status_code == STATUSES[told["reason"]][0]
        return Told(
            how=told["reason"],
            field=told.get("field", ""),
            message=told["error"],
            again="retry-after" in reply.headers,
        )

    async def submit_many(self, said: list[dict[str, Any]]) -> list[str]:
        lines = b"".join(json.dumps(_encoded(one)).encode() + b"\n" for one in said)
        reply = await self._http.post(
            "/v1/responses", content=lines, headers={"Content-Type": "application/x-ndjson"}
        )
        _check(reply)
        told = reply.json()
        ended = {error["line"]: error["reason"] for error in told["errors"]}
        assert told["accepted"] + told["duplicates"] + told["refused"] == len(said)
        return [ended.get(number, "taken") for number in range(1, len(said) + 1)]

    async def get(self, name: str, tenant: str = "") -> dict[str, Any] | None:
        reply = await self._http.get(f"/v1/responses/{name}", params={"tenant": tenant})
        if reply.status_code == 404:
            return None
        _check(reply)
        found = reply.json()
        return {
            "answer": found["response"].get("answer", ""),
            "images": found["response"].get("images", []),
            "earlier": found["response"].get("earlier"),
            "outcomes": {
                name: (one["outcome"], one.get("score"), [claim["decision"] for claim in one["claims"]])
                for name, one in found["outcomes"].items()
            },
            "waiting": found["waiting"],
        }

    async def watch(self, after: int | None = None, **wanted: str) -> AsyncIterator[tuple[int, str]]:
        params = wanted | ({"since": str(after)} if after is not None else {})
        async with self._http.stream("GET", "/v1/scores", params=params) as reply:
            await _read_error(reply)
            number = 0
            async for line in reply.aiter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    number = int(value)
                if name == "data":
                    yield number, json.loads(value)["id"]


class OverGrpc:
    def __init__(self, stub: Any, message: Callable[[dict[str, Any]], pb.Response], token: str = "") -> None:
        self._stub = stub
        self._message = message
        self._metadata = (("authorization", f"Bearer {token}"),) if token else ()

    async def submit(self, said: dict[str, Any]) -> Told:
        from grpc_status import rpc_status

        try:
            told = await self._stub.Submit(
                pb.SubmitRequest(response=self._message(said)), timeout=20, metadata=self._metadata
            )
        except grpc.aio.AioRpcError as error:
            status = rpc_status.from_call(_Call(error))
            details = {detail.type_url.rpartition(".")[2]: detail for detail in status.details}
            info, wrong = _details(details)
            assert error.code().name == STATUSES[info.reason.lower()][1]
            return Told(
                how=info.reason.lower(),
                field=wrong.removeprefix("response."),
                message=error.details() or "",
                again="RetryInfo" in details,
            )
        return Told(how=_name(told.status), id=told.id)

    async def submit_many(self, said: list[dict[str, Any]]) -> list[str]:
        async def requests() -> AsyncIterator[pb.SubmitStreamRequest]:
            for start in range(0, len(said), 3):
                yield pb.SubmitStreamRequest(responses=map(self._message, said[start : start + 3]))

        found: list[str] = []
        async for told in self._stub.SubmitStream(requests(), timeout=60, metadata=self._metadata):
            assert told.first == len(found) + 1
            found += [result.reason or "taken" for result in told.results]
        return found

    async def get(self, name: str, tenant: str = "") -> dict[str, Any] | None:
        try:
            found = await self._stub.GetResponse(
                pb.GetResponseRequest(id=name, tenant=tenant), timeout=20, metadata=self._metadata
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                return None
            raise _denied(error) from error
        return {
            "answer": found.response.answer,
            "images": [image.sha256 for image in found.response.images],
            "earlier": {
                "text": found.response.earlier.text,
                "images": [image.sha256 for image in found.response.earlier.images],
            }
            if found.response.HasField("earlier")
            else None,
            "outcomes": {
                one.protocol: (
                    pb.OutcomeKind.Name(one.kind).removeprefix("OUTCOME_KIND_").lower(),
                    one.score if one.HasField("score") else None,
                    [
                        pb.Decision.Name(claim.decision).removeprefix("DECISION_").lower()
                        for claim in one.claims
                    ],
                )
                for one in found.outcomes
            },
            "waiting": list(found.waiting),
        }

    async def watch(self, after: int | None = None, **wanted: str) -> AsyncIterator[tuple[int, str]]:
        call = self._stub.WatchScores(pb.WatchScoresRequest(after=after, **wanted), metadata=self._metadata)
        try:
            async for event in call:
                if event.WhichOneof("event") == "scored":
                    yield event.scored.position, event.scored.outcome.id
        except grpc.aio.AioRpcError as error:
            raise _denied(error) from error
        finally:
            call.cancel()


class _Call:
    """An error of the asynchronous client, as the helper for the other kind of client wants it."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self._error = error

    def trailing_metadata(self) -> Any:
        return tuple(self._error.trailing_metadata())

    def code(self) -> grpc.StatusCode:
        return self._error.code()

    def details(self) -> str | None:
        return self._error.details()


def _details(details: dict[str, Any]) -> tuple[Any, str]:
    from google.rpc import error_details_pb2

    info, wrong = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    assert details["ErrorInfo"].Unpack(info)
    assert info.domain == "groundwatch"
    if "BadRequest" not in details:
        return info, ""
    assert details["BadRequest"].Unpack(wrong)
    return info, wrong.field_violations[0].field


class Denied(Exception):
    """The door's word to somebody who may not: the reason."""


def _check(reply: Any) -> None:
    if reply.status_code in (401, 403):
        told = reply.json()
        assert reply.status_code == STATUSES[told["reason"]][0]
        assert ("www-authenticate" in reply.headers) == (reply.status_code == 401)
        raise Denied(told["reason"])


async def _read_error(reply: Any) -> None:
    if reply.status_code >= 400:
        await reply.aread()
        _check(reply)


def _denied(error: grpc.aio.AioRpcError) -> Denied:
    from grpc_status import rpc_status

    status = rpc_status.from_call(_Call(error))
    info, _ = _details({detail.type_url.rpartition(".")[2]: detail for detail in status.details})
    assert error.code().name == STATUSES[info.reason.lower()][1]
    return Denied(info.reason.lower())


def _name(status: int) -> str:
    return pb.SubmitStatus.Name(status).removeprefix("SUBMIT_STATUS_").lower()


def _encoded(said: dict[str, Any]) -> dict[str, Any]:
    if "images" not in said:
        return said
    images = [
        {"base64": base64.b64encode(image).decode()} if isinstance(image, bytes) else image
        for image in said["images"]
    ]
    return said | {"images": images}


Opened = Callable[..., Awaitable[tuple[Any, Client]]]


@pytest.fixture(params=["http", "grpc"])
def opened(request: Any, gateway_factory: Any, stub_factory: Any, message: Any) -> Opened:
    """Starts a gateway and gives it with one of its doors."""

    async def make(token: str = "", **gateway: Any) -> tuple[Any, Client]:
        running = await gateway_factory(grpc_port=0, **gateway)
        if request.param == "http":
            return running, OverHttp(running, token)
        return running, OverGrpc(await stub_factory(running), message, token)

    return make


async def test_a_response_is_in_the_stream_when_the_door_says_so(opened, response):
    gateway, door = await opened()
    said = response(
        prompt="What is there?",
        tenant="acme",
        tags={"version": "3"},
        reference={
            "facts": [{"text": "There is a dog.", "holds": True}],
            "objects": ["dog", "mat"],
            "triplets": [["dog", "on", "mat"]],
            "complete": True,
        },
    )
    assert await door.submit(said) == Told(how="recorded", id=said["id"])
    [event] = await gateway.events()
    assert (event.id, event.model, event.answer, event.prompt, event.tenant) == (
        said["id"],
        said["model"],
        said["answer"],
        said["prompt"],
        "acme",
    )
    assert event.tags == {"version": "3"}
    assert event.protocols == ("faithscore",)
    assert event.recorded_at > 1.7e9
    assert event.reference is not None
    assert event.reference.complete
    assert event.reference.facts[0].holds
    assert event.reference.triplets == (("dog", "on", "mat"),)
    assert gateway.count("groundwatch_responses_total", tenant="acme", model="heron-7b") == 1


async def test_ids_are_made_up_repeats_told_and_conflicts_refused(opened, response):
    gateway, door = await opened()
    said = response()
    nameless = {name: value for name, value in said.items() if name != "id"}
    made = [await door.submit(nameless) for _ in range(2)]
    assert {one.how for one in made} == {"recorded"}
    assert len({one.id for one in made}) == 2
    assert (await door.submit(said)).how == "recorded"
    assert (await door.submit(said)).how == "duplicate"
    conflict = await door.submit(said | {"answer": "Else."})
    assert (conflict.how, conflict.field) == ("conflict", "id")
    assert len(await gateway.events()) == 3
    assert gateway.count("groundwatch_refused_responses_total", reason="conflict") == 1


async def test_what_earlier_turns_said_and_showed_is_kept_apart(opened, response, pictures):
    gateway, door = await opened()
    cat, dog = pictures.encoded("PNG"), pictures.encoded("JPEG")
    digests = [hashlib.sha256(image).hexdigest() for image in (cat, dog)]
    said = response(images=[cat, dog], earlier="user: What is it?\nassistant: A cat.", earlier_images=1)
    assert (await door.submit(said)).how == "recorded"
    assert (await door.submit(said | {"images": digests})).how == "duplicate"
    [event] = await gateway.events()
    assert event.images == (digests[1],)
    assert event.earlier == Earlier(text=said["earlier"], images=(digests[0],))
    found = await door.get(said["id"])
    assert found["images"] == [digests[1]]
    assert found["earlier"] == {"text": said["earlier"], "images": [digests[0]]}
    wrong = await door.submit(said | {"id": "wrong", "images": [cat, b"GIF89a"]})
    assert (wrong.how, wrong.field) == ("image", "images[1]")
    await door.submit(response(id="alone"))
    assert (await door.get("alone"))["earlier"] is None


async def test_boxes_are_the_same_at_both_doors(gateway, stub, publish, response):
    said = response()
    await gateway.post(said)
    box = Box(x0=0.125, y0=0.25, x1=0.5, y1=1.0, score=0.75, label="dog", image=1)
    claim = JudgedClaim(text="A dog.", category="entity", unit=0, decision=Decision.REFUTED, boxes=(box,))
    await publish(said["id"], claims=(claim,), decided=1, eligible=1, score=0.0)
    wanted = msgspec.to_builtins(box)
    over_http = (await gateway.http.get(f"/v1/responses/{said['id']}")).json()["outcomes"]["faithscore"]
    assert over_http["claims"][0]["boxes"] == [wanted]
    over_grpc = (await stub.GetResponse(pb.GetResponseRequest(id=said["id"]))).outcomes[0]
    [sent] = over_grpc.claims[0].boxes
    assert {field.name: value for field, value in sent.ListFields()} == wanted


async def test_the_same_at_both_doors_is_one_response(gateway, stub, message, response):
    said = response(tags={"b": "1", "a": "2"}, reference={"objects": ["dog"]})
    assert (await OverHttp(gateway).submit(said)).how == "recorded"
    assert (await OverGrpc(stub, message).submit(said)).how == "duplicate"
    assert len(await gateway.events()) == 1


REFUSED = {
    "no model": ({"model": ""}, "invalid", "model", "length"),
    "id too long": ({"id": "i" * 257}, "invalid", "id", "256"),
    "tenant too long": ({"tenant": "t" * 257}, "invalid", "tenant", "256"),
    "answer too long": ({"answer": "a" * 200_001}, "invalid", "answer", "200000"),
    "prompt too long": ({"prompt": "p" * 50_001}, "invalid", "prompt", "50000"),
    "too many images": ({"images": ["0" * 64] * 17}, "invalid", "images", "16"),
    "too much reference": ({"reference": {"objects": ["o"] * 2001}}, "invalid", "reference", "2000"),
    "a long tag": ({"tags": {"k": "v" * 1024}}, "invalid", "tags.k", "1024"),
    "a time that is none": ({"recorded_at": -1.0}, "invalid", "recorded_at", "time"),
    "unknown protocol": ({"protocols": ["faithscore", "vibes"]}, "unknown_protocol", "protocols", "vibes"),
    "an address for an image": ({"images": ["http://x/a.png"]}, "image", "images[0]", "send the image"),
    "an address that is not allowed": (
        {"images": [{"url": "https://x.example/a.png"}]},
        "image_not_allowed",
        "images[0]",
        "gateway.fetch.allow",
    ),
    "no image at all": ({"images": [b"GIF89a"]}, "image", "images[0]", ""),
    "an image not stored": ({"images": ["0" * 64]}, "image_missing", "images[0]", "stored"),
}


@pytest.mark.parametrize(("change", "reason", "field", "word"), REFUSED.values(), ids=REFUSED.keys())
async def test_refusals_name_reason_and_field(opened, response, change, reason, field, word):
    gateway, door = await opened()
    told = await door.submit(response(**change))
    assert (told.how, told.field, told.again) == (reason, field, False)
    assert word in told.message
    assert "\n" not in told.message
    assert await gateway.events() == []
    assert gateway.count("groundwatch_refused_responses_total", reason=reason) == 1


async def test_an_image_is_stored_under_its_hash(opened, response, pictures):
    gateway, door = await opened()
    picture = pictures.encoded("PNG")
    said = response(images=[picture])
    assert (await door.submit(said)).how == "recorded"
    [event] = await gateway.events()
    assert (await door.submit(response(images=list(event.images)))).how == "recorded"
    inside = response(images=[{"url": f"data:image/png;base64,{base64.b64encode(picture).decode()}"}])
    assert (await door.submit(inside)).how == "recorded"
    for name in (said["id"], inside["id"]):
        found = await door.get(name)
        assert found is not None
        assert found["images"] == list(event.images)


async def test_an_image_elsewhere_is_fetched(opened, response, pictures, image_server):
    picture = pictures.encoded("PNG")
    image_server.reply("/images/a.png", picture)
    image_server.reply("/images/busy.png", b"", "503 Busy")
    there = f"http://127.0.0.1:{image_server.port}/images/"
    gateway, door = await opened(fetch={"allow": (there,), "networks": ("127.0.0.1",)})
    assert (await door.submit(response(images=[{"url": f"{there}a.png"}]))).how == "recorded"
    [event] = await gateway.events()
    assert event.images == (hashlib.sha256(picture).hexdigest(),)
    wrong = [await door.submit(response(images=[{"url": there + name}])) for name in ("none.png", "busy.png")]
    assert [(told.how, told.again) for told in wrong] == [
        ("image_not_fetched", False),
        ("image_unavailable", True),
    ]


async def test_a_full_backlog_is_to_be_tried_again(opened, response, bus):
    gateway, door = await opened(intake={"max_backlog": 2})
    sent = [await door.submit(response()) for _ in range(4)]
    assert [one.how for one in sent] == ["recorded"] * 3 + ["backlog"]
    assert sent[-1].again
    assert len(await gateway.events()) == 3


async def test_an_absent_stream_is_to_be_tried_again(opened, response, bus):
    _, door = await opened(nats={"publish_timeout": 0.5})
    await bus.js.delete_stream("GW_RESPONSES")
    told = await door.submit(response())
    assert (told.how, told.again) == ("unavailable", True)


async def test_of_many_each_ends_on_its_own(opened, response, pictures):
    gateway, door = await opened(intake={"in_flight": 4})
    same = response()
    many = [
        response(),
        same,
        response(model=""),
        response(images=[pictures.encoded("PNG")]),
        same,
        same | {"answer": "Else."},
        response(protocols=["vibes"]),
        *(response() for _ in range(50)),
        response(images=["0" * 64]),
        response(),
    ]
    ended = await door.submit_many(many)
    wrong = {index: how for index, how in enumerate(ended) if how != "taken"}
    assert wrong == {2: "invalid", 5: "conflict", 6: "unknown_protocol", 57: "image_missing"}
    assert len(await gateway.events()) == 54


async def test_a_response_comes_back_with_all_of_its_judgements(opened, response, publish):
    _, door = await opened(protocols=["faithscore", "chair"])
    said = response(tenant="acme", answer="Ein Hund 🐕.")
    assert await door.get(said["id"], "acme") is None
    await door.submit(said)
    await publish(said["id"], tenant="acme", refuted=1, supported=1)
    found = await door.get(said["id"], "acme")
    assert found == {
        "answer": "Ein Hund 🐕.",
        "images": [],
        "earlier": None,
        "outcomes": {"faithscore": ("scored", 0.5, ["refuted", "supported"])},
        "waiting": ["chair"],
    }
    assert await door.get(said["id"]) is None


async def take(watching: AsyncIterator[tuple[int, str]], number: int) -> list[tuple[int, str]]:
    """The next outcomes."""
    return [await asyncio.wait_for(anext(watching), 20) for _ in range(number)]


async def watched(gateway: Any) -> None:
    """Wait until somebody watches."""
    for _ in range(500):
        if len(gateway.service.core.live.watchers):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("nobody watches")


async def test_watching_goes_on_behind_a_position(opened, publish):
    _, door = await opened()
    for number in range(20):
        await publish(f"o{number}")
    async with contextlib.aclosing(door.watch(0)) as watching:
        found = await take(watching, 12)
    assert found == [(number + 1, f"o{number}") for number in range(12)]
    async with contextlib.aclosing(door.watch(found[-1][0])) as watching:
        assert await take(watching, 8) == [(number + 1, f"o{number}") for number in range(12, 20)]
        for number in range(20, 25):
            await publish(f"o{number}")
        assert await take(watching, 5) == [(number + 1, f"o{number}") for number in range(20, 25)]


async def test_nothing_seen_elsewhere_comes_again_from_a_gateway_that_has_not_read_as_far(
    opened, publish, monkeypatch
):
    """As after a reconnect through a load balancer: the last position was told by another gateway."""
    reading = asyncio.Event()
    follow = history.follow_stream

    async def behind(*args: Any, **options: Any) -> AsyncIterator[Any]:
        async for batch in follow(*args, **options):
            if batch.messages:
                await reading.wait()
            yield batch

    monkeypatch.setattr(history, "follow_stream", behind)
    gateway, door = await opened()
    await gateway.service.core.live._caught_up.wait()
    for number in range(24):
        await publish(f"o{number}")
    async with contextlib.aclosing(door.watch(20)) as watching:
        taking = asyncio.create_task(take(watching, 5))
        await watched(gateway)
        assert gateway.service.core.live.position == 0
        reading.set()
        await publish("o24")
        assert await taking == [(number + 1, f"o{number}") for number in range(20, 25)]


async def test_a_position_of_a_stream_that_is_gone_is_from_now_on(opened, publish):
    gateway, door = await opened()
    await publish("before")
    async with contextlib.aclosing(door.watch(1_000)) as watching:
        taking = asyncio.create_task(take(watching, 1))
        await watched(gateway)
        await publish("after")
        assert await taking == [(2, "after")]


async def test_watching_while_outcomes_pour_in_misses_and_repeats_none(opened, publish):
    _, door = await opened()

    async def pour() -> None:
        for number in range(300):
            await publish(f"o{number}")

    pouring = asyncio.create_task(pour())
    async with contextlib.aclosing(door.watch(0)) as watching:
        assert [name for _, name in await take(watching, 300)] == [f"o{number}" for number in range(300)]
    await pouring


async def test_watchers_see_what_they_asked_for(opened, publish):
    _, door = await opened()
    await publish("1", model="a")
    await publish("2", model="b", tenant="t")
    await publish("3", model="b", protocol="valor")
    await publish("4", model="a", tenant="t")
    for wanted, names in (
        ({"model": "a"}, ["1", "4"]),
        ({"tenant": "t"}, ["2", "4"]),
        ({"protocol": "valor", "model": "b"}, ["3"]),
    ):
        async with contextlib.aclosing(door.watch(0, **wanted)) as watching:
            assert [name for _, name in await take(watching, len(names))] == names


TOKENS = "acme acme-token-0123456789\nother other-token-0123456789\n* every-token-0123456789\n"


@pytest.fixture
def tokens_file(tmp_path: Any) -> str:
    path = tmp_path / "tokens"
    path.write_text(TOKENS)
    return str(path)


@pytest.mark.parametrize("token", ["", "wrong-token-0123456789", "*"])
async def test_nobody_is_let_in_without_a_known_token(opened, response, tokens_file, token):
    gateway, door = await opened(token, tokens_file=tokens_file)
    told = await door.submit(response())
    assert (told.how, told.again) == ("unauthenticated", False)
    assert "token" in told.message
    assert "0123456789" not in told.message
    for call in (door.get("r1"), anext(door.watch(0))):
        with pytest.raises(Denied, match="unauthenticated"):
            await call
    assert await gateway.events() == []


async def test_a_tenants_token_is_good_for_that_tenant(opened, response, publish, tokens_file):
    gateway, door = await opened("acme-token-0123456789", tokens_file=tokens_file)
    ours = response()
    assert (await door.submit(ours)).how == "recorded"
    assert (await door.submit(ours | {"tenant": "acme"})).how == "duplicate"
    theirs = await door.submit(response(id="theirs", tenant="other"))
    assert (theirs.how, theirs.field, theirs.again) == ("other_tenant", "tenant", False)
    assert "acme" in theirs.message
    ended = await door.submit_many([response(), response(tenant="other"), response(tenant="acme")])
    assert ended == ["taken", "other_tenant", "taken"]
    assert {event.tenant for event in await gateway.events()} == {"acme"}
    assert len(await gateway.events()) == 3
    assert gateway.count("groundwatch_refused_responses_total", reason="other_tenant") == 2
    found = await door.get(ours["id"])
    assert found is not None
    assert found == await door.get(ours["id"], "acme")
    await publish("theirs", tenant="other")
    await publish("mine", tenant="acme")
    async with contextlib.aclosing(door.watch(0)) as watching:
        assert [name for _, name in await take(watching, 1)] == ["mine"]
    for call in (door.get(ours["id"], "other"), anext(door.watch(0, tenant="other"))):
        with pytest.raises(Denied, match="other_tenant"):
            await call


async def test_a_token_for_all_is_good_for_each(opened, response, tokens_file):
    gateway, door = await opened("every-token-0123456789", tokens_file=tokens_file)
    for tenant in ("acme", "other", "third"):
        said = response(tenant=tenant)
        assert (await door.submit(said)).how == "recorded"
        assert await door.get(said["id"], tenant) is not None
    assert {event.tenant for event in await gateway.events()} == {"acme", "other", "third"}
