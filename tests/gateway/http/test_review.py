"""Reviewing over HTTP: blind, one item for one reviewer, and each opinion once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from groundwatch.keys import response_key
from groundwatch.reviews.opinions import Opinions
from groundwatch.reviews.queues import AnswerCount, Frame, Frames, Item, Items, Queues, QueueSpec
from groundwatch.runtime.delivery.bus import Bus
from groundwatch_benchmarks.agreement.people import read_annotators

MAT = "There is a mat."
FACTS = [
    {"text": "There is a dog.", "category": "entity", "decision": "supported", "claim": 0},
    {"text": "There is a mat.", "category": "entity", "decision": "supported", "claim": 1},
    {"text": "The mat is red.", "category": "color", "decision": "refuted"},
]
OPINION = {"labels": ["descriptive"], "facts": FACTS, "mark": 4, "seconds": 12.5}


@pytest.fixture
async def reviewing(gateway_factory, response, publish, bus: Bus):
    """A gateway, and a way to fill a queue with answers."""

    async def make(number: int = 2, tenants: tuple[str, ...] = ("default",), **spec: Any) -> Any:
        gateway = await gateway_factory(**settings)
        headers = {"authorization": f"Bearer {TOKENS['*']}"} if settings else {}
        await Queues(bus).create(QueueSpec(**{"name": "q", "protocol": "faithscore"} | spec))
        for at in range(number):
            tenant = tenants[at % len(tenants)]
            sent = response(id=f"r{at}", tenant=tenant, prompt="What is there?")
            told = await gateway.http.post("/v1/responses", json=sent, headers=headers)
            assert told.status_code == 202
            await publish(f"r{at}", refuted=1, supported=1, tenant=tenant)
            item = Item(
                queue="q",
                key=response_key(tenant, f"r{at}"),
                id=f"r{at}",
                tenant=tenant,
                model="heron-7b",
                protocol="faithscore",
                probability=0.25,
                order=at / 100,
                wanted=spec.get("reviewers", 1),
            )
            assert await Items(bus).create(item)
        return gateway.http

    settings: dict[str, Any] = {}
    make.settings = settings  # type: ignore[attr-defined]
    return make


TOKENS = {"*": "t" * 20 + "-all", "acme": "t" * 20 + "-acme", "other": "t" * 20 + "-other"}


async def test_a_review_from_the_item_to_the_opinion(reviewing, bus):
    http = await reviewing()
    got = (await http.post("/v1/queues/q/next", json={"reviewer": "ann"})).json()
    assert got["response"] == {"prompt": "What is there?", "answer": "A dog sits on a mat.", "images": []}
    assert [claim["text"] for claim in got["claims"]] == ["There is a dog.", "There is a mat."]
    assert (got["done"], got["total"], got["draft"]) == (0, 2, None)
    at = f"/v1/queues/q/items/{got['item']['key']}"
    told = await http.put(f"{at}/draft", json={"reviewer": "ann", "draft": {"mark": 1}})
    assert told.status_code == 200
    again = (await http.post("/v1/queues/q/next", json={"reviewer": "ann"})).json()
    assert again["item"]["key"] == got["item"]["key"] and again["draft"] == {"mark": 1}
    given = (await http.post(f"{at}/opinion", json={"reviewer": "ann"} | OPINION)).json()
    assert [one["decision"] for one in given["judged"]] == ["refuted", "supported"]
    assert given["agreement"] == {"same": 1, "compared": 2} and given["stored"]
    repeated = (await http.post(f"{at}/opinion", json={"reviewer": "ann"} | OPINION)).json()
    assert not repeated["stored"]
    (opinion,) = await Opinions(bus).latest()
    assert (opinion.reviewer, opinion.queue, opinion.probability) == ("ann", "q", 0.25)
    assert opinion.judged == {"all": (1, 2), "entity": (1, 2)} and opinion.mark == 4
    assert [fact.claim for fact in opinion.facts] == [0, 1, None]
    second = (await http.post("/v1/queues/q/next", json={"reviewer": "ann"})).json()
    assert second["item"]["id"] == "r1" and second["done"] == 1
    back = (await http.get(at, params={"reviewer": "ann"})).json()
    assert back["draft"]["mark"] == 4 and len(back["judged"]) == 2
    await http.post(f"{at}/opinion", json={"reviewer": "ann"} | OPINION | {"mark": 2})
    (revised,) = await Opinions(bus).latest()
    assert (revised.mark, revised.revision) == (2, 2)


async def test_what_is_said_of_one_that_was_put_there_by_hand_counts_on_where_it_was_drawn(reviewing, bus):
    http, items = await reviewing(1), Items(bus)
    (drawn,) = await items.list("q")
    await Queues(bus).create(QueueSpec(name="hand", protocol="faithscore"))
    await items.create(msgspec.structs.replace(drawn, queue="hand", probability=0.0))
    for queue, mark in (("q", 4), ("hand", 2)):
        at = f"/v1/queues/{queue}/items/{drawn.key}/opinion"
        assert (await http.post(at, json={"reviewer": "ann"} | OPINION | {"mark": mark})).json()["stored"]
    (said,) = await Opinions(bus).latest()
    assert (said.mark, said.queue, said.probability, len(said.facts)) == (2, "q", 0.25, 3)
    # Taken back there, it is not taken from the queue that drew it.
    assert (await http.request("DELETE", at, json={"reviewer": "ann"})).status_code == 204
    assert await Opinions(bus).latest() == [said]
    assert not (await items.find("hand", drawn.key)).done


async def test_nothing_of_what_the_judge_said_is_shown_before(reviewing):
    http = await reviewing()
    got = await http.post("/v1/queues/q/next", json={"reviewer": "ann"})
    key = got.json()["item"]["key"]
    for shown in (got.text, (await http.get(f"/v1/queues/q/items/{key}?reviewer=ann")).text):
        for word in ("refuted", "supported", "probability", "evidence", "judged"):
            assert word not in shown


async def test_two_reviewers(reviewing):
    http = await reviewing()
    keys = {
        who: (await http.post("/v1/queues/q/next", json={"reviewer": who})).json()["item"]["key"]
        for who in ("ann", "bob")
    }
    assert len(set(keys.values())) == 2
    assert (await http.post("/v1/queues/q/next", json={"reviewer": "cy"})).status_code == 204
    at = f"/v1/queues/q/items/{keys['ann']}"
    for told in (
        await http.put(f"{at}/draft", json={"reviewer": "bob", "draft": {}}),
        await http.post(f"{at}/opinion", json={"reviewer": "bob"} | OPINION),
        await http.get(at, params={"reviewer": "bob"}),
    ):
        assert told.status_code == 409 and "\n" not in told.json()["error"]
    assert (await http.post(f"{at}/release", json={"reviewer": "ann"})).status_code == 204
    assert (await http.get(at, params={"reviewer": "bob"})).status_code == 200


async def test_a_queue_is_made_told_and_closed(reviewing):
    http = await reviewing()
    made = await http.post("/v1/queues", json={"name": "r", "protocol": "faithscore", "share": 0.5})
    assert made.status_code == 201 and made.json()["queue"]["share"] == 0.5
    assert (await http.post("/v1/queues", json={"name": "r", "protocol": "faithscore"})).status_code == 422
    for wrong in ({"name": "../x"}, {"name": "s"}, {"name": "s", "protocol": "p", "odd": 1}, [], "x"):
        told = await http.post("/v1/queues", json=wrong)
        assert told.status_code == 422 and len(told.json()["error"].splitlines()) == 1
    listed = (await http.get("/v1/queues")).json()["queues"]
    assert [one["queue"]["name"] for one in listed] == ["q", "r"]
    assert listed[0]["progress"]["items"] == 2
    assert (await http.post("/v1/queues/q/close")).json()["queue"]["closed"]
    assert (await http.post("/v1/queues/q/next", json={})).status_code == 204
    assert (await http.get("/v1/queues/none")).status_code == 404


@pytest.mark.parametrize(
    "wrong",
    [
        {"mark": 6},
        {"labels": ["descriptive", "analytical"]},
        {"labels": ["odd"]},
        {"facts": [FACTS[0] | {"claim": 2}]},
        {"facts": [FACTS[0] | {"unit": 1}]},
        {"facts": [FACTS[0], FACTS[0]]},
        {"facts": [FACTS[0] | {"text": " "}]},
        {"facts": [FACTS[0] | {"decision": "maybe"}]},
        {"facts": [FACTS[2]] * 2_000},
        {"reviewer": "judge:0123"},
        {"reviewer": "a\nb"},
    ],
)
async def test_an_opinion_that_cannot_be(reviewing, bus, wrong):
    http = await reviewing()
    key = (await http.post("/v1/queues/q/next", json={})).json()["item"]["key"]
    told = await http.post(f"/v1/queues/q/items/{key}/opinion", json=OPINION | wrong)
    assert told.status_code == 422 and len(told.json()["error"].splitlines()) == 1
    assert await Opinions(bus).latest() == []


async def test_who_it_is_assigned_to_alone(reviewing):
    http = await reviewing(assigned=("ann",))
    assert (await http.post("/v1/queues/q/next", json={"reviewer": "bob"})).status_code == 403
    assert (await http.post("/v1/queues/q/next", json={"reviewer": "ann"})).status_code == 200


async def test_an_answer_that_is_kept_no_longer_is_passed_over(reviewing, bus):
    http = await reviewing()
    await bus.js.purge_stream("GW_RESPONSES", subject=f"gw.recorded.live.{response_key('default', 'r0')}")
    got = (await http.post("/v1/queues/q/next", json={})).json()
    assert got["item"]["id"] == "r1"


async def test_a_tenant_sees_and_touches_its_own_items_alone(reviewing, bus, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(f"{tenant} {token}\n" for tenant, token in TOKENS.items()))
    reviewing.settings["tokens_file"] = str(tokens)
    http = await reviewing(4, tenants=("acme", "other"))
    everybody, acme = ({"authorization": f"Bearer {TOKENS[one]}"} for one in ("*", "acme"))
    others = [response_key("other", name) for name in ("r1", "r3")]
    seen = []
    for _ in range(2):
        got = (await http.post("/v1/queues/q/next", json={"after": (seen or [""])[-1]}, headers=acme)).json()
        assert got["item"]["tenant"] == "acme"
        seen.append(got["item"]["key"])
    for key in others:
        at = f"/v1/queues/q/items/{key}"
        for told in (
            await http.get(at, headers=acme),
            await http.put(f"{at}/draft", json={"draft": {}}, headers=acme),
            await http.post(f"{at}/opinion", json=OPINION, headers=acme),
            await http.post(f"{at}/release", json={}, headers=acme),
        ):
            assert told.status_code == 404
    shown = (await http.get("/v1/queues/q", headers=acme)).json()
    assert shown["progress"]["items"] == 2 and "frame" not in shown
    frame = Frame(queue="q", drawn=9876, answers={("m", "", "p", "f", "all"): AnswerCount(number=8765)})
    await Frames(bus).save(frame, 0)
    for who, said in ((everybody, True), (acme, False)):
        page = (await http.get("/queues/q", headers=who)).text
        assert ("9,876" in page, "8,765" in page, "0.250" in page) == (said,) * 3
    alarm = {"name": "a", "rule": "alarm"}
    for key in ("0" * 32, "1" * 32):
        told = await http.post("/v1/queues", json=alarm | {"alarm": key}, headers=acme)
        assert told.status_code == 403 and "alarms are about all tenants" in told.json()["error"]
        assert (await http.post("/queues", data=alarm | {"alarm": key}, headers=acme)).status_code == 403
    assert (await http.post("/v1/queues/q/close", headers=acme)).status_code == 403
    mine = {"name": "m", "protocol": "faithscore"}
    assert (await http.post("/v1/queues", json=mine, headers=acme)).json()["queue"]["tenant"] == "acme"
    for theirs in ({"tenant": "other"} | mine, {"name": "n", "protocol": "faithscore", "tenant": "other"}):
        assert (await http.post("/v1/queues", json=theirs, headers=acme)).status_code == 403
    line = msgspec.json.encode(
        {"id": "r1", "tenant": "other", "protocol": "faithscore", "claim": 0, "holds": True}
    )
    assert (await http.post("/v1/opinions", content=line, headers=acme)).status_code == 403
    assert (await http.post("/v1/opinions", content=line, headers=everybody)).status_code == 200
    assert (await http.get("/v1/opinions", headers=acme)).text == ""
    assert len((await http.get("/v1/opinions", headers=everybody)).text.splitlines()) == 1


async def test_nobody_learns_what_another_tenant_names_its_queues(reviewing, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(f"{tenant} {token}\n" for tenant, token in TOKENS.items()))
    reviewing.settings["tokens_file"] = str(tokens)
    http = await reviewing(0)
    everybody, acme, other = ({"authorization": f"Bearer {TOKENS[one]}"} for one in ("*", "acme", "other"))
    launch = {"name": "launch", "protocol": "faithscore"}
    assert (await http.post("/v1/queues", json=launch, headers=other)).status_code == 201
    told = await http.post("/v1/queues", json=launch, headers=acme)
    assert told.status_code == 422 and told.json()["field"] == "queue"
    page = await http.post("/queues", data=launch | {"rule": "random"}, headers=acme)
    assert page.status_code == 422
    for text in (told.json()["error"], page.text):
        assert "choose another name" in text and "already" not in text
    for who in (everybody, other):
        told = await http.post("/v1/queues", json=launch, headers=who)
        assert (told.status_code, told.json()["error"]) == (422, "there is a queue 'launch' already")
    told = await http.post("/v1/queues", json=launch | {"name": "q"}, headers=acme)
    assert told.json()["error"] == "there is a queue 'q' already"


async def test_files_go_in_and_out(reviewing, bus, tmp_path):
    http = await reviewing()
    lines = [
        {"id": "r0", "tenant": "default", "protocol": "faithscore", "claim": 0, "holds": False},
        {
            "id": "r0",
            "tenant": "default",
            "protocol": "faithscore",
            "claim": "There is a mat.",
            "holds": True,
        },
        {"id": "r1", "tenant": "default", "protocol": "faithscore", "claim": 1, "holds": True},
    ]
    content = b"\n".join(map(msgspec.json.encode, lines))
    told = (await http.post("/v1/opinions?reviewer=ann", content=content)).json()
    assert told == {"opinions": 2, "new": 2}
    assert (await http.post("/v1/opinions?reviewer=ann", content=content)).json()["new"] == 0
    opinions = await Opinions(bus).latest()
    assert {one.probability for one in opinions} == {0.0}
    out = (await http.get("/v1/opinions?format=verdicts")).text
    assert [one | {"claim": 1} if one["claim"] == MAT else one for one in lines] == [
        msgspec.json.decode(line) for line in out.splitlines()
    ]
    annotators = tmp_path / "annotators.jsonl"
    annotators.write_text((await http.get("/v1/opinions?format=annotators")).text)
    assert len(read_annotators(annotators)) == 3
    whole = (await http.get("/v1/opinions?format=jsonl")).content
    for file in (annotators.read_bytes(), whole):
        assert (await http.post("/v1/opinions", content=file)).json() == {"opinions": 2, "new": 0}
    for wrong in (
        b"[]",
        b"{",
        msgspec.json.encode(lines[0] | {"claim": 7}),
        msgspec.json.encode(lines[0] | {"id": "none"}),
        msgspec.json.encode(lines[0]) + b"\n" + msgspec.json.encode(lines[0]),
        b'{"item": "x", "annotator": "a", "label": "refuted"}',
    ):
        told = await http.post("/v1/opinions", content=wrong)
        assert told.status_code in (404, 422) and told.json()["error"].startswith("line ")


async def test_what_a_line_says_of_its_answer_is_taken_from_the_outcome(reviewing, bus, tmp_path):
    """A tenant that invents answers, models and probabilities changes nobody's corrected rate."""
    tokens = tmp_path / "tokens"
    tokens.write_text("".join(f"{tenant} {token}\n" for tenant, token in TOKENS.items()))
    reviewing.settings["tokens_file"] = str(tokens)
    http = await reviewing(2, tenants=("acme", "other"), assigned=("ann",))
    acme, everybody = ({"authorization": f"Bearer {TOKENS[one]}"} for one in ("acme", "*"))
    fact = {"text": "There is a dog.", "category": "entity", "decision": "refuted", "claim": 0}
    line = {"id": "r0", "model": "of another", "protocol": "faithscore", "reviewer": "ann", "tenant": "acme"}
    line |= {"queue": "q", "probability": 1e-6, "weight": 1e6, "fingerprint": "0" * 12, "facts": [fact]}
    line |= {"judged": {"all": [0, 1]}, "given_at": 1e300, "recorded_at": 5.0}

    async def sent(headers=acme, **changes):
        return await http.post("/v1/opinions", json=line | changes, headers=headers)

    judge = {"engine": "llm"}
    for wrong, status in (
        ({"id": "invented"}, 422),
        ({"tenant": "other"}, 403),
        ({"protocol": "a.b"}, 422),
        ({"run": "replayed"}, 422),
        ({"reviewer": ""}, 422),
        ({"reviewer": "a\nb"}, 422),
        ({"reviewer": "judge:x"}, 403),
        ({"judge": judge}, 422),
        ({"facts": [fact | {"claim": -100}]}, 422),
        ({"facts": [fact | {"claim": 2}]}, 422),
        ({"facts": [fact | {"claim": 10**30}]}, 422),
        ({"facts": [fact | {"unit": 1}]}, 422),
        ({"facts": [fact, fact]}, 422),
        ({"facts": [fact | {"text": " "}]}, 422),
        ({"labels": ["descriptive", "descriptive"]}, 422),
        ({"judged": {"all": [-1, 1]}}, 422),
        ({"probability": -1.0}, 422),
        ({"probability": 1.5}, 422),
        ({"weight": -1.0}, 422),
    ):
        told = await sent(**wrong)
        assert (told.status_code, len(told.json()["error"].splitlines())) == (status, 1), (wrong, told.text)
    assert (await sent(everybody, reviewer="judge:x")).status_code == 422
    assert await Opinions(bus).latest() == []
    assert (await sent()).json() == {"opinions": 1, "new": 1}
    (opinion,) = await Opinions(bus).latest()
    assert (opinion.model, opinion.probability, opinion.weight) == ("heron-7b", 0.25, 1.0)
    assert opinion.judged["all"] == (1, 2) and opinion.fingerprint != "0" * 12
    assert opinion.recorded_at > 1e9 and opinion.given_at < 1e10
    # Whoever the queue is not assigned to, and of a queue that did not draw the answer: drawn by no rule.
    assert (await sent(reviewer="bob")).json()["new"] == 1
    assert (await sent(queue="none", reviewer="cy")).json()["new"] == 1
    exported = (await http.get("/v1/opinions", headers=acme)).text
    assert [one["probability"] for one in map(msgspec.json.decode, exported.splitlines())] == [0, 0, 0]
    others = {one.reviewer: (one.queue, one.probability) for one in await Opinions(bus).latest()}
    assert others == {"ann": ("q", 0.25), "bob": ("", 0.0), "cy": ("", 0.0)}


async def test_a_queue_of_impossible_times_is_refused(reviewing):
    http = await reviewing()
    for wrong in ({"since": 1e300}, {"until": 1e300}, {"since": -1}, {"size": 10**30}, {"share": 1e-400}):
        told = await http.post("/v1/queues", json={"name": "w", "protocol": "faithscore"} | wrong)
        assert told.status_code == 422 and len(told.json()["error"].splitlines()) == 1, wrong
