"""The judgement cache: nobody is paid twice, nobody gets another's judgement, nothing fails without it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.provisioning import provision_again

from groundwatch.errors import GroundwatchError, TransientError, Unscorable
from groundwatch.events import (
    Claim,
    ClaimsExtracted,
    Decision,
    Drawn,
    Earlier,
    Judge,
    Reference,
    ResponseRecorded,
    Usage,
    Verdict,
)
from groundwatch.models.settings import ChatSettings
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol, MatchingQuestions
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.settings import (
    CacheSettings,
    NatsSettings,
    Settings,
    StageSettings,
    VisualSettings,
)
from groundwatch.runtime.settings.judges import EngineSettings
from groundwatch.runtime.stores import cache as caching
from groundwatch.runtime.stores.cache import JudgementCache, asked_with, cache_key, keys_of, scope_of, seen
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.topology import BUCKETS, CACHE_BUCKET
from groundwatch.verification.engines.base import NOT_JUDGED, Verification

STREAM = next(bucket.stream for bucket in BUCKETS if bucket.name == CACHE_BUCKET)
FAITHSCORE = registry.get("faithscore")
PAID = Usage(calls=2, input_tokens=300, output_tokens=20, cost=0.25)


def claims(name: str, **response: Any) -> ClaimsExtracted:
    """A response with one claim."""
    return ClaimsExtracted(
        response=ResponseRecorded(**{"id": name, "model": "heron-7b", "answer": name} | response),
        protocol="faithscore",
        judge=Judge(engine="llm", model="x"),
        claims=(Claim(text=f"There is a {name}.", category="entity"),),
        usage=PAID,
    )


class Engine:
    """A judge that counts what it is asked, and says what it is told to."""

    def __init__(self, *, engine: str = "llm", model: str = "judge-1", version: str = "1") -> None:
        self.asked: list[str] = []
        self.name = Judge(engine=engine, model=model, prompt="abc", version=version)
        self.says: dict[str, Verification | GroundwatchError] = {}

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return self.name

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        self.asked += [event.response.id for event in extracted]
        return [self.says.get(event.response.id, verdict(0.1 + 0.2)) for event in extracted]


def verdict(probability: float | None = None, evidence: str = "", usage: Usage = PAID) -> Verification:
    """One claim, judged."""
    found = Verdict(decision=Decision.SUPPORTED, probability=probability, evidence=evidence)
    return Verification(verdicts=(found,), usage=usage)


class Through:
    """Judges over a cache, for a settings' sake."""

    def __init__(self, bus: Bus, **cache: Any) -> None:
        self.metrics = Metrics()
        self.cache = JudgementCache(Settings(cache=CacheSettings(**cache)), bus, self.metrics)

    async def __call__(self, engine: Engine, *events: ClaimsExtracted, stage: str = "verification") -> Any:
        return await self.cache.through(stage, FAITHSCORE, engine.judge, events, engine.verify, Verification)

    def counted(self, name: str, **labels: str) -> float:
        """The sum of a metric over its labels."""
        return sum(
            sample.value
            for metric in self.metrics.registry.collect()
            for sample in metric.samples
            if sample.name == f"groundwatch_cache_{name}_total"
            and all(sample.labels[label] == value for label, value in labels.items())
        )


@pytest.fixture
def through(bus: Bus, clean_streams: None) -> Through:
    return Through(bus)


async def test_what_is_known_is_not_asked_again(through: Through) -> None:
    engine = Engine()
    fresh = await through(engine, claims("cat"), claims("dog"))
    mixed = await through(engine, claims("dog"), claims("owl"), claims("cat"))
    assert engine.asked == ["cat", "dog", "owl"]
    assert [one.usage for one in mixed] == [Usage(cached=2), PAID, Usage(cached=2)]
    # Equal to the last byte but for what it took.
    again = msgspec.structs.replace(mixed[2], usage=PAID)
    assert msgspec.json.encode(again) == msgspec.json.encode(fresh[0])
    assert (through.counted("hits"), through.counted("misses")) == (2, 3)
    assert through.counted("saved_calls", stage="verification", engine="llm", model="judge-1") == 4
    assert through.counted("saved_tokens", direction="input") == 600
    assert through.counted("saved_tokens", direction="output") == 40
    assert through.counted("saved_dollars") == 0.5
    assert through.counted("faults") == 0


async def test_another_process_knows_it_too(through: Through, bus: Bus) -> None:
    await through(Engine(), claims("cat"))
    engine = Engine()
    await Through(bus)(engine, claims("cat", id="another", run="replay", recorded_at=9.0))
    assert engine.asked == []


@pytest.mark.parametrize(
    "other",
    [Engine(model="judge-2"), Engine(version="1-0.7"), Engine(engine="visual")],
    ids=("model", "version", "engine"),
)
async def test_another_judge_judges_anew(through: Through, other: Engine) -> None:
    await through(Engine(), claims("cat"))
    other.asked.clear()
    await through(other, claims("cat"))
    assert other.asked == ["cat"]


async def test_never_across_tenants_unless_told(through: Through, bus: Bus) -> None:
    engine = Engine()
    await through(engine, claims("cat", tenant="a"))
    await through(engine, claims("cat", tenant="b"))
    assert engine.asked == ["cat", "cat"]
    shared = Through(bus, shared_across_tenants=True)
    await shared(engine, claims("cat", tenant="a"))
    await shared(engine, claims("cat", tenant="b"))
    assert engine.asked == ["cat"] * 3


@pytest.mark.parametrize(
    "result",
    [
        Unscorable("refused"),
        TransientError("away"),
        verdict(usage=Usage()),
        verdict(evidence=f"{NOT_JUDGED}: refused"),
    ],
    ids=("refused", "transient", "free", "judged in part"),
)
async def test_what_may_be_otherwise_next_time_is_not_kept(through: Through, result: Any) -> None:
    engine = Engine()
    engine.says["cat"] = result
    for _ in range(2):
        assert await through(engine, claims("cat"), claims("dog")) != []
    assert engine.asked == ["cat", "dog", "cat"]


async def test_only_engines_that_cost_and_stages_that_are_named(through: Through, bus: Bus) -> None:
    for engine, maker, stage in (
        (Engine(engine="reference"), through, "verification"),
        (Engine(), Through(bus, enabled=False), "verification"),
        (Engine(), Through(bus, stages=("extraction",)), "verification"),
    ):
        for _ in range(2):
            await maker(engine, claims("cat"), stage=stage)
        assert engine.asked == ["cat", "cat"]
        assert maker.counted("hits") == maker.counted("misses") == 0
    assert (await bus.js.stream_info(STREAM)).state.messages == 0


async def test_who_answers_may_change_while_the_cache_is_asked(through: Through) -> None:
    """Then what is not known is handed back, and not judged under the name of before."""
    engine = Engine(engine="triton", model="verifier@1")
    await through(engine, claims("cat"))
    names = iter([engine.name, *[msgspec.structs.replace(engine.name, model="verifier@2")] * 9])
    engine.judge = lambda protocol: next(names)  # type: ignore[method-assign]
    known, unknown = await through(engine, claims("cat"), claims("dog"))
    assert known.usage.cached and isinstance(unknown, TransientError) and engine.asked == ["cat"]


@pytest.mark.parametrize(
    "spoiled",
    [b"", b"{}", b'{"verdicts":[]}', b"\xff\xfe", "other key", "other form", "cut"],
)
async def test_an_entry_that_is_none_is_judged_again_and_mended(
    through: Through, bus: Bus, spoiled: bytes | str
) -> None:
    engine = Engine()
    await through(engine, claims("cat"))
    bucket = await bus.js.key_value(CACHE_BUCKET)
    (key,) = await bucket.keys()
    entry = (await bucket.get(key)).value or b""
    match spoiled:
        case "other key":
            spoiled = entry.replace(key.encode(), b"0" * len(key))
        case "other form":
            spoiled = entry.replace(b'"Verification"', b'"Extraction"')
        case "cut":
            spoiled = entry[:-9]
    assert spoiled != entry
    await bucket.put(key, spoiled)  # type: ignore[arg-type]
    await through(engine, claims("cat"))
    await through(engine, claims("cat"))
    assert engine.asked == ["cat", "cat"]
    assert through.counted("faults", operation="decode") == 1


async def test_without_its_bucket_judges_are_asked(through: Through, bus: Bus) -> None:
    await bus.js.delete_stream(STREAM)
    engine = Engine()
    for _ in range(2):
        (found,) = await through(engine, claims("cat"))
        assert found.verdicts
    assert engine.asked == ["cat", "cat"]
    # It is left alone for a while, and not asked for each of thousands of claims.
    assert through.counted("faults") == 1
    await provision_again(bus.js)


async def test_it_is_used_again_when_it_is_back(
    through: Through, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caching, "PAUSE", 0.0)
    await bus.js.delete_stream(STREAM)
    engine = Engine()
    await through(engine, claims("cat"))
    await provision_again(bus.js)
    await through(engine, claims("cat"))
    await through(engine, claims("cat"))
    assert engine.asked == ["cat", "cat"]


async def test_a_server_that_is_gone_fails_no_judgement(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    await server.start()
    bus = Bus(NatsSettings(url=server.url), name="test")
    await bus.connect()
    try:
        await provision(bus.js)
        through, engine = Through(bus), Engine()
        await through(engine, claims("cat"))
        await server.stop()
        (found,) = await through(engine, claims("cat"))
        assert found.usage == PAID and engine.asked == ["cat", "cat"]
        assert through.counted("faults") >= 1
    finally:
        await bus.close()


async def test_a_full_bucket_forgets_the_oldest(bus: Bus, clean_streams: None) -> None:
    await provision(bus.js, cache=CacheSettings(max_bytes=1024 * 1024))
    through, engine = Through(bus), Engine()
    for number in range(8):
        name = f"{number}"
        engine.says[name] = verdict(evidence="x" * 250_000)
        await through(engine, claims(name))
    state = (await bus.js.stream_info(STREAM)).state
    assert state.bytes <= 1024 * 1024 and 2 <= state.messages < 8
    engine.asked.clear()
    await through(engine, claims("7"), claims("0"))
    assert engine.asked == ["0"]
    assert through.counted("faults") == 0


async def test_what_is_larger_than_an_entry_may_be_is_judged_only(through: Through) -> None:
    engine = Engine()
    engine.says["cat"] = verdict(evidence="x" * caching.LARGEST)
    for _ in range(2):
        await through(engine, claims("cat"))
    assert engine.asked == ["cat", "cat"] and through.counted("faults") == 0


async def test_text_without_an_encoding_is_judged_only(through: Through) -> None:
    engine = Engine()
    (found,) = await through(engine, claims("cat", answer="a \ud800 cat"))
    assert found.verdicts and engine.asked == ["cat"]


async def test_limits_follow_the_settings(bus: Bus, clean_streams: None) -> None:
    async def config() -> Any:
        return (await bus.js.stream_info(STREAM)).config

    assert (await config()).max_age == CacheSettings().ttl
    assert (await config()).discard == "old"
    wanted = CacheSettings(ttl=60.0, max_bytes=2 * 1024 * 1024)
    changes = {one.name: one.change for one in await provision(bus.js, cache=wanted)}
    assert changes[CACHE_BUCKET] == "updated"
    assert ((await config()).max_age, (await config()).max_bytes) == (60.0, 2 * 1024 * 1024)
    changes = {one.name: one.change for one in await provision(bus.js, cache=wanted)}
    assert changes[CACHE_BUCKET] == "unchanged"


async def test_what_is_known_of_a_response_and_of_a_tenant_is_found(through: Through, bus: Bus) -> None:
    """As an erasure does, which must find it under every judge and stage."""
    event = claims("cat", tenant="a")
    await through(Engine(), event, claims("dog", tenant="a"), claims("owl", tenant="b"))
    await through(Engine(model="judge-2"), event)

    async def left() -> int:
        return int((await bus.js.stream_info(STREAM)).state.messages)

    assert await left() == 4
    await bus.js.purge_stream(STREAM, subject=f"$KV.{CACHE_BUCKET}.{keys_of(event.response)}")
    assert await left() == 2
    await bus.js.purge_stream(STREAM, subject=f"$KV.{CACHE_BUCKET}.{scope_of('a')}.>")
    assert await left() == 1


def key(event: ClaimsExtracted | ResponseRecorded, settings: Settings | None = None, **changes: Any) -> str:
    stage = changes.pop("stage", "verification")
    judge = changes.pop("judge", Judge(engine="llm", model="judge-1"))
    told = asked_with(settings or llm(), stage, "faithscore")
    return cache_key(event, stage=stage, protocol="faithscore", judge=judge, settings=told, **changes)


def test_what_one_protocol_is_asked_with_is_nothing_to_another() -> None:
    chat = ChatSettings(base_url="http://other/v1", model="judge-1", temperature=0.7)
    own = {"faithscore": EngineSettings(engine="llm", llm=chat)}
    settings = llm()
    changed = Settings(verification=settings.verification.model_copy(update={"protocols": own}))
    keys = [
        asked_with(one, "verification", name)
        for one in (settings, changed)
        for name in ("faithscore", "pope")
    ]
    assert keys[0] == keys[1] == keys[3] != keys[2]


def llm(**changes: Any) -> Settings:
    chat = ChatSettings(**({"base_url": "http://judge/v1", "model": "judge-1"} | changes))
    return Settings(verification=StageSettings(engine="llm", llm=chat))


@pytest.mark.parametrize(
    "change",
    [
        {"answer": "other"},
        {"prompt": "What is it?"},
        {"images": ("0" * 64,)},
        {"images": ("0" * 64, "1" * 64)},
        {"reference": Reference(objects=("cat",))},
        {"reference": Reference(objects=("cat",), complete=True)},
        {"tags": {"a": "b"}},
        {"tenant": "other"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_a_judge_sees_makes_another_key(change: dict[str, Any]) -> None:
    assert key(claims("cat", **change)) != key(claims("cat"))


def test_claims_stages_judges_and_settings_make_another_key() -> None:
    event = claims("cat")
    other = msgspec.structs.replace(event, claims=(Claim(text="There is a cat.", category="count"),))
    keys = [
        key(event),
        key(other),
        key(msgspec.structs.replace(event, claims=event.claims * 2)),
        key(event, stage="matching"),
        key(event.response, stage="extraction"),
        key(event, judge=Judge(engine="llm", model="judge-1", prompt="other")),
        key(event, llm(temperature=0.7)),
        key(event, llm(seed=1)),
        key(event, llm(max_tokens=10)),
        key(event, llm(structured="none")),
        key(event, llm(base_url="http://other/v1")),
        key(event, llm().model_copy(update={"visual": VisualSettings(threshold=0.50000001)})),
        key(event, shared=True),
    ]
    assert len({*keys}) == len(keys)


def test_nothing_else_does() -> None:
    event = claims("cat")
    response = msgspec.structs.replace(
        event.response,
        id="other",
        model="osprey",
        run="again",
        recorded_at=1.0,
        protocols=("valor",),
        drawn={"faithscore": Drawn(probability=0.5)},
        partition=2,
    )
    other = msgspec.structs.replace(event, response=response, judge=Judge(engine="noop"), usage=Usage())
    assert key(other) == key(event)
    paying = {"timeout": 1.0, "concurrency": 3, "input_price": 4.0, "retries": 9, "api_key_env": "KEY"}
    assert key(event, llm(**paying)) == key(event)


def test_every_field_of_a_response_is_seen_or_named_as_not_seen() -> None:
    """A new field is part of the key by itself; one that judges never look at belongs into `seen`."""
    full = ResponseRecorded(
        id="i",
        model="m",
        answer="a",
        tenant="t",
        prompt="p",
        images=("0",),
        reference=Reference(objects=("o",)),
        tags={"a": "b"},
        protocols=("faithscore",),
        declined={"x": "y"},
        drawn={"x": Drawn()},
        run="r",
        recorded_at=1.0,
        unanswered=None,
        partition=1,
        earlier=Earlier(text="e"),
    )
    left = {
        name
        for name in full.__struct_fields__
        if getattr(full, name) and getattr(seen(full), name) == getattr(full, name)
    }
    assert left == {"answer", "prompt", "images", "reference", "tags"}


@pytest.mark.parametrize("name", registry.names())
def test_no_protocol_asks_about_what_is_not_in_the_key(name: str) -> None:
    """The questions to a judge are the same with and without it."""
    protocol = registry.get(name)
    event = claims(
        "a red cat sits under a table",
        tenant="t",
        prompt="What is there?",
        run="r",
        recorded_at=5.0,
        reference=Reference(objects=("cat", "table"), triplets=(("cat", "is", "red"),)),
        drawn={"x": Drawn(probability=0.5)},
        protocols=(name,),
    )
    bare = msgspec.structs.replace(event, response=seen(event.response))

    def asked(one: ClaimsExtracted) -> list[Any]:
        found: list[Any] = []
        steps = _tried(protocol.extraction_steps)
        for index in range(steps if isinstance(steps, int) else 0):
            found.append(_tried(lambda index=index: protocol.extraction_step(index, one.response, ())))
        found.append(_tried(lambda: protocol.verification_step(one.response, one.claims)))
        if isinstance(protocol, MatchingQuestions):
            found.append(_tried(lambda: protocol.matching_step(one)))
        return found

    assert asked(bare) == asked(event)


def _tried(ask: Any) -> Any:
    try:
        return ask()
    except Exception as error:
        return repr(error)
