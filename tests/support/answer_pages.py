"""Answers with everything that the page of one answer can show, put into the streams as services do."""

from __future__ import annotations

import io
from typing import Any

import msgspec
from PIL import Image, ImageDraw

from groundwatch.events import (
    Box,
    ChainAdvanced,
    ChainStep,
    Claim,
    ClaimsExtracted,
    ClaimsMatched,
    Decision,
    Drawn,
    Judge,
    JudgedClaim,
    Label,
    Match,
    OutcomeKind,
    ResponseRecorded,
    ResponseScored,
    SubSentence,
    Usage,
)
from groundwatch.protocols.triplets import blame
from groundwatch.runtime.delivery import outcomes
from groundwatch.runtime.delivery.bus import Bus, Outgoing
from groundwatch.topology import subject_of

NOW = 1_772_366_400.0

ANSWER = (
    "A brown dog sits on a striped mat next to two red balls. It seems to be waiting for its owner. "
    "Behind it stands a white fridge, and a cat sleeps on the window sill."
)
HOSTILE = (
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> "
    "\u202eright to left\u202c \u200b\u200bzero\u200bwidth \x1b[31mred\x1b[0m "
    "'quoted' \"twice\" {{ 7*7 }} \x00end "
)


def picture(color: str = "#d8d3c4", size: tuple[int, int] = (640, 480)) -> bytes:
    """A kitchen, by rectangles."""
    image = Image.new("RGB", size, color)
    draw = ImageDraw.Draw(image)
    width, height = size
    draw.rectangle((0, height * 0.7, width, height), fill="#a8977c")
    draw.rectangle((width * 0.7, height * 0.15, width * 0.92, height * 0.72), fill="#f4f5f6")
    draw.ellipse((width * 0.2, height * 0.45, width * 0.45, height * 0.82), fill="#6b4a2b")
    draw.ellipse((width * 0.5, height * 0.75, width * 0.57, height * 0.85), fill="#b3261e")
    draw.rectangle((width * 0.1, height * 0.82, width * 0.62, height * 0.92), fill="#394a63")
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def units_of(answer: str, *labels: Label) -> tuple[SubSentence, ...]:
    """Its sentences."""
    units, start = [], 0
    for at, sentence in enumerate(answer.split(". ")):
        end = min(len(answer), start + len(sentence) + (1 if at < answer.count(". ") else 0))
        label = labels[at] if at < len(labels) else Label.DESCRIPTIVE
        units.append(SubSentence(start=start, end=end, text=answer[start:end], label=label))
        start = end + 1
    return tuple(units)


def fact(text: str, decision: Decision, unit: int = 0, **more: Any) -> JudgedClaim:
    return JudgedClaim(**{"text": text, "category": "entity", "unit": unit, "decision": decision} | more)


DOG = Box(x0=0.2, y0=0.45, x1=0.45, y1=0.82, score=0.94, label="dog")
BALL = Box(x0=0.5, y0=0.75, x1=0.57, y1=0.85, score=0.81, label="ball")
FRIDGE = Box(x0=0.7, y0=0.15, x1=0.92, y1=0.72, score=0.88, label="fridge")

FACTS = (
    fact(
        "There is a dog.",
        Decision.SUPPORTED,
        probability=0.97,
        boxes=(DOG,),
        evidence="dog 0.94",
        place="112, 340, 655, 498",
    ),
    fact("The dog is brown.", Decision.SUPPORTED, category="color", probability=0.91, boxes=(DOG,)),
    fact("There are two balls.", Decision.REFUTED, category="count", probability=0.08, boxes=(BALL,)),
    fact("There is a fridge.", Decision.SUPPORTED, 2, probability=0.95, boxes=(FRIDGE,)),
    fact("A cat sleeps on the window sill.", Decision.REFUTED, 2, probability=0.03),
    fact("The mat is striped.", Decision.UNDECIDED, category="other", probability=0.52),
)

TRIPLETS = (
    fact("dog is on mat", Decision.SUPPORTED, category="relation", parts=("dog", "on", "mat")),
    fact(
        "dog is under fridge",
        Decision.REFUTED,
        category="relation",
        parts=("dog", "under", "fridge"),
        evidence=blame("relation"),
    ),
    fact(
        "cat is on sill",
        Decision.REFUTED,
        category="relation",
        parts=("cat", "on", "sill"),
        evidence=blame("object1"),
    ),
)
REFERENCE = {
    "objects": ["dog", "mat", "ball", "fridge"],
    "triplets": [["dog", "on", "mat"], ["ball", "beside", "dog"]],
    "complete": True,
}


class Filler:
    """Puts answers into the streams of a gateway that runs."""

    def __init__(self, gateway: Any, bus: Bus) -> None:
        self._gateway = gateway
        self._bus = bus

    async def image(self, data: bytes) -> str:
        reply = await self._gateway.http.post(
            "/v1/images", content=data, headers={"Content-Type": "image/png"}
        )
        return str(reply.json()["sha256"])

    async def record(self, name: str, **changes: Any) -> None:
        body = {
            "id": name,
            "model": "osprey-13b",
            "answer": ANSWER,
            "prompt": "What is in the kitchen?",
            "tags": {"version": "2026-11"},
            "protocols": ["faithscore"],
        }
        reply = await self._gateway.post(body | changes)
        assert reply.status_code in (200, 202), reply.text

    async def judge(self, name: str, protocol: str = "faithscore", **changes: Any) -> None:
        claims = changes.get("claims", FACTS)
        decided = [one for one in claims if one.decision is not Decision.UNDECIDED]
        right = sum(one.decision is Decision.SUPPORTED for one in decided)
        values: dict[str, Any] = {
            "id": name,
            "model": "osprey-13b",
            "protocol": protocol,
            "outcome": OutcomeKind.SCORED,
            "score": right / len(decided) if decided else 1.0,
            "units": units_of(ANSWER, Label.DESCRIPTIVE, Label.ANALYTICAL),
            "claims": claims,
            "eligible": len(claims),
            "decided": len(decided),
            "judges": {
                "extraction": Judge(engine="reader"),
                "verification": Judge(engine="detector", model="owl"),
            },
            "usage": Usage(calls=3, cost=0.00042),
            "drawn": Drawn(),
            "tags": {"version": "2026-11"},
            "recorded_at": NOW,
            "scored_at": NOW + 2,
        }
        await self._bus.create(outcomes.outgoing(ResponseScored(**(values | changes))))

    async def everything(self) -> None:
        """Answers `kitchen` (in two runs), `chain`, `features`, `none`, `waiting`, and a hostile one."""
        image = await self.image(picture())
        kitchen = {"images": [image]}
        await self.record("kitchen", **kitchen, reference=REFERENCE, protocols=["faithscore", "tri-he"])
        await self.judge("kitchen", images=(image,))
        await self.judge("kitchen", "tri-he", images=(image,), claims=TRIPLETS)
        await self.judge("kitchen", images=(image,), run="again", claims=FACTS[:2])
        await self.record("none")
        unscored = {"outcome": OutcomeKind.UNSCORED, "score": None, "claims": ()}
        await self.judge("none", **unscored, reason="refused", detail="The judge said no.")
        await self._chain()
        await self._features()
        await self.record("waiting", answer="A dog runs.")
        long = HOSTILE + "wide" * 250_000
        await self.record("hostile <b>&'\"/?#", answer=long[:190_000], model=HOSTILE[:80].replace("\x00", ""))
        await self.judge(
            "hostile <b>&'\"/?#",
            model=HOSTILE[:80],
            units=(SubSentence(start=0, end=len(long), text=long, label=Label.DESCRIPTIVE),),
            claims=(fact(long, Decision.REFUTED, evidence=HOSTILE, category=HOSTILE, boxes=(DOG,)),),
            tags={HOSTILE[:40]: long[:3000], "version": HOSTILE},
            images=(image, image),
        )

    async def _chain(self) -> None:
        seeds = [await self.image(picture(color)) for color in ("#d8d3c4", "#c4d3d8", "#d8c4d0", "#c9d8c4")]
        await self.record("chain", images=[seeds[0]], protocols=["genception"], tags={"t": "3"})
        response = ResponseRecorded(id="chain", model="osprey-13b", answer=ANSWER, images=(seeds[0],))
        steps = tuple(
            ChainStep(description=f"{ANSWER} Round {at}.", image=seed, similarity=similarity)
            for at, (seed, similarity) in enumerate(zip(seeds[1:], (0.83, 0.61, 0.58), strict=True), 1)
        )
        chain = ChainAdvanced(response=response, protocol="genception", length=3, steps=steps)
        subject = subject_of("judged", "live", "scoring", "genception", response.key)
        await self._bus.create(Outgoing(subject=subject, payload=msgspec.json.encode(chain)))
        values = {"gc1": 0.83, "gc2": 0.68, "gc3": 0.63}
        await self.judge(
            "chain", "genception", claims=(), units=(), score=0.63, values=values, images=(seeds[0],)
        )

    async def _features(self) -> None:
        protocol = "valor-object-existence"
        await self.record("features", reference=REFERENCE, protocols=[protocol])
        response = ResponseRecorded(id="features", model="osprey-13b", answer=ANSWER)
        named = tuple(Claim(text=text, category="object") for text in ("dog", "pet bowl", "cat"))
        extracted = ClaimsExtracted(
            response=response, protocol=protocol, judge=Judge(engine="reader"), claims=named
        )
        matches = (Match(claim=0, reference="dog"), Match(claim=1, reference="mat", kind="broader"))
        matched = ClaimsMatched(extracted=extracted, judge=Judge(engine="llm"), matches=matches)
        subject = subject_of("judged", "live", "scoring", protocol, response.key)
        await self._bus.create(Outgoing(subject=subject, payload=msgspec.json.encode(matched)))
        claims = tuple(
            fact(one.text, Decision.REFUTED if one.text == "cat" else Decision.SUPPORTED) for one in named
        )
        await self.judge("features", protocol, claims=claims)
