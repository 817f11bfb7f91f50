"""The engine `detector` against what is known of scenes: by kind of statement, with its calibration.

The engine is the real one, and so is the served model's code; only the server between them is left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from groundwatch.errors import GroundwatchError, Unscorable
from groundwatch.events import Claim, ClaimsExtracted, Decision, Judge, ResponseRecorded, Verdict
from groundwatch.miniature.language import NUMBERS, PLURALS, article, holds
from groundwatch.miniature.world import COLORS, KINDS, PLACES, SIZES, Scene, png, scenes
from groundwatch.models.replies import Detection
from groundwatch.models.serving.detector import DetectionRequest, Detector
from groundwatch.models.serving.failures import Refused
from groundwatch.models.serving.parameters import Parameters, checkpoint_digest
from groundwatch.models.settings import DetectorSettings, TritonSettings
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.protocols.method import Progress
from groundwatch.verification.engines.detector import DetectorVerificationEngine
from groundwatch_benchmarks.coefficients import calibration

TARGETS = {"existence": 0.97, "count": 0.90, "position": 0.95}
"""The least share of right verdicts among those decided, by kind."""

RELATIONS = ("to the left of", "to the right of", "above", "below")
SIDES = {"left": "on", "right": "on", "top": "at", "bottom": "at"}


class InProcess:
    """What the engine asks of Triton's client, in this process."""

    def __init__(self, folder: Path) -> None:
        self.settings = TritonSettings()
        self._detector = Detector(Parameters(model_id=str(folder)))
        self._label = f"detector@{checkpoint_digest(folder)[:12]}"

    def label(self, model: str) -> str:
        return self._label

    async def confirm(self, *models: str) -> None:
        """Nobody else can answer."""

    async def detect(self, image: bytes, texts: Sequence[str]) -> tuple[Detection, ...]:
        if not texts:
            return ()
        (found,) = self._detector.detect([DetectionRequest(image=image, texts=tuple(texts))])
        if isinstance(found, Refused):
            raise Unscorable(found.reason, str(found))
        if isinstance(found, Exception):
            raise found
        return found


def statements(shown: Scene, random: Random) -> Iterator[tuple[str, str]]:
    """Statements about a scene by kind: of each kind one that holds and one drawn without looking."""
    for kind in (random.choice(shown.things).kind, random.choice(KINDS)):
        yield "existence", f"There is {random.choice((article(kind), 'no'))} {kind}."
    named = random.choice(shown.things)
    for number in (len(shown.of_kind(named.kind)), random.randint(1, len(PLACES))):
        is_one = number == 1
        things = named.kind if is_one else PLURALS[named.kind]
        yield "count", f"There {'is' if is_one else 'are'} {NUMBERS[number]} {things}."
    for place in (named.place, random.choice(PLACES)):
        side = random.choice(place.split())
        where = random.choice((f"in the {place} corner", f"{SIDES[side]} the {side}"))
        yield "position", f"The {named.kind} is {where}."
    for color in (named.color, random.choice(tuple(COLORS))):
        yield "color", f"The {named.kind} is {color}."
    for size in SIZES:
        yield "size", f"The {named.kind} is {size}."
    if others := [one.kind for one in shown.things if one.kind != named.kind]:
        yield "position", f"The {named.kind} is {random.choice(RELATIONS)} the {random.choice(others)}."


def detector(folder: Path, scene: Mapping[str, Scene]) -> DetectorVerificationEngine:
    """The engine with this checkpoint. `scene`: which one an image's name stands for."""
    models: Any = InProcess(folder)

    async def load(name: str) -> tuple[bytes, str]:
        return png(scene[name]), "image/png"

    return DetectorVerificationEngine(models, load, DetectorSettings(attributes=("size",)))


Statement = tuple[Verdict, bool]
"""A verdict on a statement, and whether that is true."""


async def detector_verdicts(
    folder: Path, protocol: EvaluationProtocol, number: int, seed: int, progress: Progress
) -> dict[str, list[Statement]]:
    """On statements about so many scenes, by kind."""
    shown_as: dict[str, Scene] = {}
    engine = detector(folder, shown_as)
    random = Random(seed)
    found: dict[str, list[Statement]] = {}
    for at, shown in enumerate(islice(scenes(seed), number), 1):
        shown_as[str(at)] = shown
        said = list(statements(shown, random))
        response = ResponseRecorded(id=str(at), model="", answer="", images=(str(at),))
        claims = tuple(Claim(text=text, category=kind) for kind, text in said)
        event = ClaimsExtracted(
            response=response, protocol=protocol.name, judge=Judge(engine=""), claims=claims
        )
        (result,) = await engine.verify([event], protocol)
        if isinstance(result, GroundwatchError):
            raise result
        for (kind, text), verdict in zip(said, result.verdicts, strict=True):
            found.setdefault(kind, []).append((verdict, bool(holds(shown, text))))
        progress("detector", at, number)
    return found


def summary(pairs: Sequence[Statement]) -> dict[str, Any]:
    """Statements, the share that was decided, of these the share that was right, and how far probabilities
    are off: Brier's score, and the expected calibration error in ten bins."""
    decided = [
        (verdict.decision is Decision.SUPPORTED) == true
        for verdict, true in pairs
        if verdict.decision is not Decision.UNDECIDED
    ]
    brier, error = calibration(
        [(one.probability, true) for one, true in pairs if one.probability is not None]
    )
    return {
        "statements": len(pairs),
        "true": fmean(true for _, true in pairs),
        "undecided": 1 - len(decided) / len(pairs),
        "right": fmean(decided) if decided else None,
        "brier": brier,
        "calibration_error": error,
    }
