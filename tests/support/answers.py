"""Random outcomes, and what a search among them must give, worked out one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from groundwatch.events import (
    Decision,
    Drawn,
    Judge,
    JudgedClaim,
    Label,
    OutcomeKind,
    ResponseScored,
    SubSentence,
    version_of,
)
from groundwatch.reporting.answers import (
    FACT_LENGTH,
    FACTS,
    NO_DOUBT,
    NO_SCORE,
    RANKS,
    SENTENCE_LENGTH,
    AnswerQuery,
    Hit,
    HitFact,
)

DAY = 1_772_323_200.0
"""2026-03-01, midnight UTC."""

WORDS = ("dog", "Ball", "red", "ÜBER", "zebra", "the", "catalog", "猫", "%", "a_b", "'quoted'", 'say "so"')
CATEGORIES = ("entity", "color", "count", "col")
RUNS = ("live", "live", "again")
VERSION_TAGS = ("version", "release")


def random_outcome(random: Random, number: int) -> ResponseScored:
    claims = tuple(
        JudgedClaim(
            text=" ".join(random.choices(WORDS, k=3)),
            category=random.choice(CATEGORIES),
            unit=random.randrange(3),
            decision=random.choice(tuple(Decision)),
            probability=random.choice((None, round(random.random(), 3))),
            evidence=random.choice(("", "seen")),
        )
        for _ in range(random.randrange(5))
    )
    scored = random.random() < 0.8
    texts = [" ".join(random.choices(WORDS, k=4)) for _ in range(random.randrange(4))]
    tags = {"strategy": random.choice(("direct", "direct-2")), "version": random.choice("123")}
    recorded_at = DAY + random.randrange(6 * 86_400) + 0.25 * random.randrange(4)
    return ResponseScored(
        id=f"r{number // 2}",
        tenant=f"tenant-{number // 2 % 3}",
        model=random.choice(("osprey", "osprey-2", "heron")),
        protocol=("faithscore", "tri-he")[number % 2],
        run=random.choice(RUNS),
        outcome=OutcomeKind.SCORED if scored else random.choice((OutcomeKind.UNSCORED, OutcomeKind.DECLINED)),
        reason="" if scored else "refused",
        score=round(random.random(), 1) if scored else None,
        judges={"verification": Judge(engine="llm", model="judge")},
        units=tuple(
            SubSentence(start=0, end=len(text), text=text, label=random.choice(tuple(Label)))
            for text in texts
        ),
        claims=claims,
        eligible=len(claims),
        decided=sum(claim.decision is not Decision.UNDECIDED for claim in claims),
        drawn=Drawn(probability=0.5, lowest=0.25, stratum="ordinary"),
        tags={name: tag for name, tag in tags.items() if random.random() < 0.7},
        images=tuple(random.choices(("ab" * 32, "cd" * 32), k=random.randrange(3))),
        recorded_at=recorded_at if random.random() < 0.95 else 0.0,
        scored_at=recorded_at + 2.0,
    )


def random_query(random: Random) -> AnswerQuery:
    """One that has a few filters, in any order."""
    whole = {
        "words": tuple(word.lower() for word in random.sample(WORDS, k=random.randrange(1, 3))),
        "model": random.choice(("osprey", "Heron", "nobody")),
        "version": random.choice("123"),
        "tenant": random.choice(("tenant-0", "tenant-1")),
        "protocol": random.choice(("faithscore", "Tri-HE")),
        "category": random.choice((*CATEGORIES, "Color")),
        "outcome": random.choice(("scored", "unscored", "declined")),
        "reason": random.choice(("refused", "Refused", "none")),
        "verdict": random.choice(("refuted", "undecided", "supported")),
        "tag": random.choice(("strategy=direct", "strategy=direct-2", "version=1")),
        "run": random.choice(("live", "again")),
        "id": f"r{random.randrange(20)}",
        "since": DAY + random.randrange(4 * 86_400),
        "until": DAY + 86_400 + random.randrange(5 * 86_400),
    }
    chosen = random.sample(sorted(whole), k=random.choice((0, 1, 1, 2, 3)))
    order = random.choice(tuple(RANKS))
    return AnswerQuery(**{name: whole[name] for name in chosen}, order=order)


def expected(events: Iterable[ResponseScored], query: AnswerQuery) -> list[ResponseScored]:
    """Those that a query means, but for those that are equal in the order of the query."""
    return sorted((one for one in events if _means(query, one)), key=lambda one: rank(one, query))


def rank(event: ResponseScored, query: AnswerQuery) -> tuple[float, ...]:
    """Where it stands in the query's order, the first with the lowest; places left out."""
    scored = event.outcome is OutcomeKind.SCORED
    refuted = sum(claim.decision is Decision.REFUTED for claim in event.claims) if scored else 0
    doubts = [abs(claim.probability - 0.5) for claim in event.claims if claim.probability is not None]
    when = -(event.recorded_at or event.scored_at)
    match query.order:
        case "worst":
            return -refuted, 2.0 if event.score is None else event.score, when
        case "uncertain":
            return min(doubts, default=1.0), when
    return (when,)


def named(events: Sequence[ResponseScored], query: AnswerQuery) -> list[tuple[tuple[float, ...], set[str]]]:
    """Groups of those that are equal in order, each by name."""
    found: list[tuple[tuple[float, ...], set[str]]] = []
    for event in events:
        name = f"{event.tenant} {event.id} {event.run} {event.protocol}"
        if not found or found[-1][0] != rank(event, query):
            found.append((rank(event, query), set()))
        found[-1][1].add(name)
    return found


def _means(query: AnswerQuery, event: ResponseScored) -> bool:
    version = event.tags.get("version", event.tags.get("release", ""))
    names = {name: getattr(event, name) for name in ("tenant", "run", "id")}
    forgiving = {name: getattr(event, name) for name in ("model", "protocol", "outcome", "reason")}
    if any(getattr(query, name) not in ("", value) for name, value in names.items()):
        return False
    if any(
        getattr(query, name).lower() not in ("", value.lower())
        for name, value in (forgiving | {"version": version}).items()
    ):
        return False
    texts = [*(unit.text.lower() for unit in event.units), *(claim.text.lower() for claim in event.claims)]
    if not all(any(word in text for text in texts) for word in query.words):
        return False
    facts = [
        claim
        for claim in event.claims
        if query.category.lower() in ("", claim.category.lower()) and query.verdict in ("", claim.decision)
    ]
    if (query.category or query.verdict) and not facts:
        return False
    if query.tag:
        name, _, value = query.tag.partition("=")
        if event.tags.get(name) != value:
            return False
    when = event.recorded_at or event.scored_at
    return (query.since is None or when >= query.since) and (query.until is None or when < query.until)


def hits_of(events: Iterable[ResponseScored]) -> dict[str, object]:
    """What a list shows of each, places left out."""
    return {
        f"{event.tenant} {event.id} {event.run} {event.protocol}": hit_of(
            event, event.key, 0, 0, VERSION_TAGS
        )
        for event in events
    }


def hit_of(event: ResponseScored, key: str, stream: int, sequence: int, version_tags: Sequence[str]) -> Hit:
    """What a list must show of an outcome."""
    counts = dict.fromkeys(Decision, 0)
    for claim in event.claims:
        counts[claim.decision] += 1
    scored = event.outcome is OutcomeKind.SCORED
    wrong = [claim for claim in event.claims if claim.decision is Decision.REFUTED]
    doubts = [abs(claim.probability - 0.5) for claim in event.claims if claim.probability is not None]
    units = event.units
    if wrong:
        at = wrong[0].unit
        sentence = units[at].text if 0 <= at < len(units) else ""
    else:
        sentence = next((unit.text for unit in units if unit.label is Label.DESCRIPTIVE), "")
    when = event.recorded_at or event.scored_at
    return Hit(
        id=event.id,
        tenant=event.tenant,
        run=event.run,
        model=event.model,
        version=version_of(event.tags, version_tags),
        protocol=event.protocol,
        key=key,
        outcome=event.outcome.value,
        reason=event.reason,
        moment=round(when * 1e6) if when > 0 else 0,
        stream=stream,
        sequence=sequence,
        score=event.score,
        refuted=counts[Decision.REFUTED] if scored else 0,
        supported=counts[Decision.SUPPORTED] if scored else 0,
        undecided=counts[Decision.UNDECIDED],
        badness=-event.score if event.score is not None else NO_SCORE,
        doubt=-min(doubts) if doubts else NO_DOUBT,
        sentence=sentence[:SENTENCE_LENGTH],
        facts=tuple(HitFact(claim.text[:FACT_LENGTH], claim.category, claim.unit) for claim in wrong[:FACTS]),
        image=event.images[0] if event.images else "",
    )
