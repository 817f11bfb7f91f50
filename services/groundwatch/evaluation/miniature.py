"""Does the monitor see the truth, where the truth is known exactly? And is what is promised of it so?

Every LVLM of the miniature world describes held-out scenes; the monitor's own engines judge the answers,
FaithScore without any reference; and what they say is held against what the world's grammar reads in the
same answers. The truth uses none of the monitor's parts.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import Any

import msgspec

from groundwatch.errors import GroundwatchError, Unscorable, UsageError
from groundwatch.evaluation.cascading import MOST, believed, cascade_rates, rows
from groundwatch.evaluation.detecting import TARGETS, Statement, detector_verdicts, summary
from groundwatch.events import ClaimsExtracted, Judge, Reference, ResponseRecorded, ResponseScored
from groundwatch.extraction.engines.linguistic.engine import LinguisticEngine
from groundwatch.generation.engines.base import cosine
from groundwatch.matching.engines.semantic import SemanticEngine
from groundwatch.miniature.language import PROMPTS, Truth, objects, triplets, truth
from groundwatch.miniature.world import Scene, missing_partners, png, scenes
from groundwatch.models.embeddings import SentenceEmbedder
from groundwatch.models.serving.images import GenerationRequest, Generator, ImageEncoder
from groundwatch.models.serving.lvlm import Answer, Lvlm, Question
from groundwatch.models.serving.parameters import Parameters, checkpoint_digest
from groundwatch.models.serving.verifier import EntailmentRequest, Verifier
from groundwatch.protocols import registry
from groundwatch.protocols.base import EvaluationProtocol, Stage
from groundwatch.protocols.faithscore.scoring import CATEGORIES
from groundwatch.protocols.genception.scoring import gc_at
from groundwatch.protocols.method import Progress
from groundwatch.replay.pipeline import Pipeline
from groundwatch.runtime.settings import Settings
from groundwatch.statistics import agreement
from groundwatch.statistics.alarm import ModelAlarm, Rule
from groundwatch.statistics.intervals import bootstrap
from groundwatch.system.up import MINIATURE
from groundwatch.terminal import Group, Table, box, styled
from groundwatch.verification.engines.base import Verification
from groundwatch.verification.engines.looking import verdict
from groundwatch.verification.engines.similarity import SimilarityEngine

SEED = 2 * 10**9
"""Scenes from here on belong to no training and to no other measurement."""

BATCH = 96
GRADED = ("lvlm_good", "lvlm_poor", "lvlm_biased")
"""The LVLMs: the best first, and last the one that was trained on the biased split."""

CHAIN = 3
"""Steps of GenCeption's chains."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    shown: Scene
    response: ResponseRecorded
    truth: Truth


class WorldVerifier:
    """The verification engine that looks, in this process: the serving code without its server."""

    batch = 32

    def __init__(self, folder: Path, images: dict[str, bytes]) -> None:
        self._verifier = Verifier(Parameters(model_id=str(folder)))
        self._images = images
        self._version = checkpoint_digest(folder)[:12]

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        return Judge(engine="in-process", model="verifier", version=self._version)

    async def verify(
        self, extracted: Sequence[ClaimsExtracted], protocol: EvaluationProtocol
    ) -> Sequence[Verification | GroundwatchError]:
        found = self._verifier.judge(
            [
                EntailmentRequest(
                    images=tuple(self._images[name] for name in event.response.images),
                    statements=tuple(claim.text for claim in event.claims),
                )
                for event in extracted
            ]
        )
        return [
            Unscorable("verifier_failed", str(one))
            if isinstance(one, Exception)
            else Verification(verdicts=tuple(verdict(chance, 0.5) for chance in one.probabilities))
            for one in found
        ]

    async def close(self) -> None:
        """Nothing is held."""


def answered(folder: Path, name: str, number: int, images: dict[str, bytes]) -> Iterator[Answered]:
    """A model's answers about the first `number` held-out scenes, prompts in turn; fills `images`."""
    model = Lvlm(Parameters(model_id=str(folder / name)))
    waiting = enumerate(islice(scenes(SEED), number))
    while batch := list(islice(waiting, BATCH)):
        pictures = [png(shown) for _, shown in batch]
        prompts = [_prompt(at) for at, _ in batch]
        found = model.answer(
            [
                Question(prompt=prompt, images=(picture,), max_tokens=128)
                for prompt, picture in zip(prompts, pictures, strict=True)
            ]
        )
        for (at, shown), prompt, picture, said in zip(batch, prompts, pictures, found, strict=True):
            if not isinstance(said, Answer):
                raise UsageError(f"{name} could not answer about scene {at}: {said}")
            digest = hashlib.sha256(picture).hexdigest()
            images[digest] = picture
            yield Answered(
                shown=shown,
                response=ResponseRecorded(
                    id=f"{name}-{at}", model=name, prompt=prompt, answer=said.text.strip(), images=(digest,)
                ),
                truth=truth(said.text, shown),
            )


def _prompt(at: int) -> str:
    manner = PROMPTS[at % len(PROMPTS)]
    return manner[at // len(PROMPTS) % len(manner)]


REFERENCES: dict[str, Callable[[Scene], Reference]] = {
    "valor-object-existence": lambda shown: Reference(objects=objects(shown)),
    "tri-he": lambda shown: Reference(triplets=triplets(shown), objects=objects(shown)),
}
"""What VALOR's object existence and Tri-HE are given of a scene, as their benchmarks annotate it."""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    answers: list[Answered]
    by_protocol: dict[str, list[ResponseScored]]

    def judged(self, protocol: str) -> Iterator[tuple[Answered, ResponseScored]]:
        return zip(self.answers, self.by_protocol[protocol], strict=True)


async def judge_models(
    folder: Path, number: int, progress: Progress, names: Sequence[str] = GRADED
) -> list[Judged]:
    """Let every model answer and every protocol judge. Raises `UsageError` for a missing checkpoint."""
    images: dict[str, bytes] = {}
    embedder = SentenceEmbedder(cached=50_000)
    linguistic = LinguisticEngine(embedder)
    judges: dict[str, tuple[Stage, Any]] = {
        "faithscore": (Stage.VERIFICATION, WorldVerifier(folder / "verifier", images)),
        "valor-object-existence": (Stage.MATCHING, SemanticEngine(embedder)),
        "tri-he": (Stage.VERIFICATION, SimilarityEngine(embedder)),
    }
    models = []
    for name in names:
        answers = []
        for one in answered(folder, name, number, images):
            answers.append(one)
            progress(f"{name} answers", len(answers), number)
        by_protocol: dict[str, list[ResponseScored]] = {}
        for protocol, (stage, judge) in judges.items():
            pipeline = Pipeline(Settings(), engines={Stage.EXTRACTION: linguistic, stage: judge})
            make = REFERENCES.get(protocol, lambda shown: None)
            responses = [msgspec.structs.replace(one.response, reference=make(one.shown)) for one in answers]
            done = by_protocol[protocol] = []
            async for outcome in pipeline.outcomes(protocol, responses):
                done.append(outcome)
                progress(f"{name} {protocol}", len(done), number)
        models.append(Judged(name=name, answers=answers, by_protocol=by_protocol))
    return models


def faithscore_agreement(models: Sequence[Judged]) -> dict[str, Any]:
    """Per response and per model: FaithScore against the true share of facts that hold."""
    pairs = {
        model.name: [
            (outcome.score, 1.0 - one.truth.rate)
            for one, outcome in model.judged("faithscore")
            if outcome.score is not None and one.truth.rate is not None
        ]
        for model in models
    }
    return {
        "per_response": _correlations([pair for found in pairs.values() for pair in found]),
        "by_model": {
            model.name: {"pearson": _correlations(pairs[model.name])["pearson"], **rate_errors(model)}
            for model in models
        },
    }


def rate_errors(model: Judged) -> dict[str, Any]:
    """Estimated and true rate of facts not in the image, and the error with its interval over responses."""
    sums = [
        (outcome.values["refuted"], outcome.values["decided"], one.truth.false_facts, one.truth.facts)
        for one, outcome in model.judged("faithscore")
        if outcome.score is not None
    ]

    def error(drawn: Sequence[tuple[float, ...]]) -> float | None:
        refuted, decided, false, facts = (sum(column) for column in zip(*drawn, strict=True))
        return refuted / decided - false / facts if decided and facts else None

    refuted, decided, false, facts = (sum(column) for column in zip(*sums, strict=True))
    return {
        "estimated": refuted / decided,
        "true": false / facts,
        "error": msgspec.to_builtins(bootstrap(sums, error, resamples=500)),
        "scored": len(sums),
        "responses": len(model.answers),
    }


def valor_agreement(models: Sequence[Judged]) -> dict[str, Any]:
    """Faithfulness and coverage of object existence against the kinds that are named and are there."""
    faithful, covered = [], []
    for model in models:
        for one, outcome in model.judged("valor-object-existence"):
            named = one.truth.kinds_named
            there = {thing.kind for thing in one.shown.things}
            if outcome.score is None or not named:
                continue
            faithful.append((outcome.values["faithfulness"], len(named & there) / len(named)))
            covered.append((outcome.values["coverage"], len(named & there) / len(there)))
    return {"faithfulness": _correlations(faithful), "coverage": _correlations(covered)}


def tri_he_agreement(models: Sequence[Judged]) -> dict[str, Any]:
    """The share of hallucinated triplets against the true share of false facts; rates by model."""
    pairs = []
    by_model = {}
    for model in models:
        own = [
            (outcome.values["hallu"], one.truth.rate)
            for one, outcome in model.judged("tri-he")
            if outcome.score is not None and one.truth.rate is not None
        ]
        pairs += own
        by_model[model.name] = {
            "hallu_i": fmean(hallu for hallu, _ in own),
            "true": fmean(true for _, true in own),
            "scored": len(own),
        }
    return {"per_response": _correlations(pairs), "by_model": by_model}


def biased_agreement(model: Judged) -> dict[str, Any]:
    """How often the biased model names the partner that is not there, among scenes that tempt it."""
    tempted = [one for one in model.answers if missing_partners(one.shown)]
    fell = sum(bool(set(missing_partners(one.shown)) & set(one.truth.false_kinds)) for one in tempted)
    return {"scenes": len(tempted), "partner_named": fell / len(tempted) if tempted else None}


def chains(folder: Path, names: Sequence[str], number: int, progress: Progress) -> dict[str, Any]:
    """GC@3 of every model over `number` seed images: describe, generate, compare with the seed, again."""
    generator = Generator(Parameters(model_id=str(folder / "generator")))
    encoder = ImageEncoder(Parameters(model_id=str(folder / "image_encoder")))
    seeds = [png(shown) for shown in islice(scenes(SEED + 1), number)]
    vectors = _all(encoder.encode(seeds))
    told: dict[str, Any] = {}
    for name in names:
        model = Lvlm(Parameters(model_id=str(folder / name)))
        pictures: list[bytes] = seeds
        found: list[list[float]] = [[1.0] for _ in seeds]
        for step in range(CHAIN):
            progress(f"{name} chains", step, CHAIN)
            said = _all(
                model.answer(
                    [Question(prompt=PROMPTS[0][0], images=(one,), max_tokens=128) for one in pictures]
                )
            )
            drawn = generator.draw(
                [GenerationRequest(prompt=one.text, seed=at) for at, one in enumerate(said)]
            )
            pictures = _all(drawn)
            for at, vector in enumerate(_all(encoder.encode(pictures))):
                found[at].append(cosine(vectors[at], vector))
        scores = [score for one in found if (score := gc_at(one, CHAIN)) is not None]
        told[name] = fmean(scores)
    return told


def _all(found: Sequence[Any]) -> list[Any]:
    for one in found:
        if isinstance(one, Exception):
            raise one
    return list(found)


def _correlations(pairs: Sequence[tuple[float, float]]) -> dict[str, Any]:
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    found = agreement.correlations(first, second, resamples=200)
    return {"n": len(pairs), **{name: msgspec.to_builtins(value) for name, value in found.items()}}


TRIALS = 20
"""Streams that the alarm is tried on."""

GOOD_BEFORE = (400, 3_200)
"""Good responses before a trial's rollout: soon after learning, and after an hour or a day of traffic."""

GOOD_STREAM = 10_000
"""Good responses of each stream in which every alarm is a false one."""

SEEDS_OF_CHAINS = 60


Facts = dict[str, tuple[int, int]]
"""Refuted and decided facts of a response, by category."""


def alarms(good: Judged, bad: Judged) -> dict[str, Any]:
    """Responses until a bad rollout raises an alarm, and false alarms among good responses.

    Responses are drawn with replacement from those that were really judged, in `TRIALS` seeded orders.
    """
    rule = Rule()
    fine, broken = _facts(good), _facts(bad)
    soon, late = (_waits(fine, broken, rule, number) for number in GOOD_BEFORE)
    streams = ((Random(trial), ModelAlarm(rule)) for trial in range(TRIALS))
    false = sum(_raised(alarm, fine, random, rule.learn + GOOD_STREAM) for random, alarm in streams)
    return {
        "responses_to_detect": late,
        "responses_to_detect_soon_after_learning": soon,
        "false_alarms": false,
        "good_responses": TRIALS * GOOD_STREAM,
        "false_alarms_per_10000": false / TRIALS,
        "trials": TRIALS,
        "rule": msgspec.to_builtins(rule),
    }


def _raised(alarm: ModelAlarm, facts: Sequence[Facts], random: Random, number: int) -> int:
    """How often so many responses, from the first second on, raise the alarm."""
    return sum(turn.raised for at in range(number) for _, turn in alarm.add(float(at), random.choice(facts)))


def _waits(fine: Sequence[Facts], broken: Sequence[Facts], rule: Rule, before: int) -> dict[str, Any]:
    """Bad responses until an alarm, over `TRIALS` rollouts after `before` good ones each."""
    waits: list[int] = []
    false = 0
    for trial in range(TRIALS):
        random, alarm = Random(trial), ModelAlarm(rule)
        false += _raised(alarm, fine, random, before)
        for number in range(1, 2001):
            if any(turn.raised for _, turn in alarm.add(float(before + number), random.choice(broken))):
                waits.append(number)
                break
    return {
        "good_before": before,
        "median": median(waits) if waits else None,
        "most": max(waits, default=None),
        "missed": TRIALS - len(waits),
        "false_alarms_before": false,
    }


def _facts(model: Judged) -> list[Facts]:
    """Those of each response that has any."""
    each = [one.values for one in model.by_protocol["faithscore"] if one.score is not None]
    found = [
        {
            category: (int(values.get(f"refuted.{category}", 0)), decided)
            for category in CATEGORIES
            if (decided := int(values.get(f"decided.{category}", 0)))
        }
        for values in each
    ]
    return [facts for facts in found if facts]


def measured(
    models: Sequence[Judged],
    gc: dict[str, float],
    statements: Mapping[str, Sequence[Statement]],
    cascade: dict[str, Any],
) -> dict[str, Any]:
    by_name = {model.name: model for model in models}
    faith = faithscore_agreement(models)
    true = {name: found["true"] for name, found in faith["by_model"].items()}
    best_first = sorted(gc, key=lambda name: -gc[name])
    found = {
        "scenes": len(models[0].answers),
        "faithscore": faith,
        "valor": valor_agreement(models),
        "tri_he": tri_he_agreement(models),
        "biased": biased_agreement(by_name[GRADED[-1]]),
        "genception": {"gc_at_3": gc, "order": best_first, "true_order": sorted(true, key=true.__getitem__)},
        "alarm": alarms(by_name[GRADED[0]], by_name[GRADED[-1]]),
        "detector": {kind: summary(judged) for kind, judged in statements.items()},
        "cascade": cascade,
    }
    return found | {"promises": promises(found)}


def promises(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    pearson = found["faithscore"]["per_response"]["pearson"]["value"]
    error = max(abs(one["error"]["value"]) for one in found["faithscore"]["by_model"].values())
    waits = found["alarm"]["responses_to_detect"]
    false = found["alarm"]["false_alarms_per_10000"]
    same = found["genception"]["order"] == found["genception"]["true_order"]
    detected = not waits["missed"] and waits["most"] is not None and waits["most"] <= 150
    values: dict[str, tuple[Any, str, bool]] = {
        "faithscore_pearson": (pearson, "≥ 0.80", pearson >= 0.80),
        "largest_rate_error": (error, "≤ 0.03", error <= 0.03),
        "responses_to_detect": (waits["most"], "≤ 150", detected),
        "false_alarms_per_10000": (false, "≤ 1", false <= 1),
        "gc_order_is_the_true_order": (same, "true", same),
    }
    for kind, least in TARGETS.items():
        right = found["detector"][kind]["right"]
        values[f"detector_{kind}"] = (right, f"≥ {least:.2f}", right is not None and right >= least)
    share, errors = found["cascade"]["share_last"], found["cascade"]["rate_error"]
    values["cascade_share_last"] = (share, f"≤ {MOST:.2f}", share <= MOST)
    wanted, error = errors["last_judge"], errors["cascade"]
    values["cascade_rate_error"] = (error, f"≤ {wanted:.4f}", error <= wanted)
    return {
        name: {"found": value, "promised": promised, "holds": holds}
        for name, (value, promised, holds) in values.items()
    }


async def measure(scenes: int, progress: Progress) -> dict[str, Any]:
    """Run it. Raises `UsageError` without checkpoints."""
    if absent := [
        name for name in (*GRADED, "verifier", "generator", "detector") if not (MINIATURE / name).is_dir()
    ]:
        raise UsageError(f"no checkpoint {MINIATURE / absent[0]}: train it, or install the whole package")
    began = time.monotonic()
    models = await judge_models(MINIATURE, scenes, progress)
    gc = chains(MINIATURE, GRADED, min(scenes, SEEDS_OF_CHAINS), progress)
    faithscore = registry.get("faithscore")
    statements = await detector_verdicts(MINIATURE / "detector", faithscore, scenes, SEED + 2, progress)
    judged = chain.from_iterable(statements.values())
    cascade = await cascade_rates(models, MINIATURE / "detector", believed(judged), faithscore, progress)
    found = measured(models, gc, statements, cascade)
    return found | {"seconds": round(time.monotonic() - began, 1)}


def show(found: dict[str, Any]) -> Group:
    gc = found["genception"]["gc_at_3"]
    models = _table("model", "facts not in the image: true", "estimated", "error (95 %)", "r", "GC@3")
    for name, one in found["faithscore"]["by_model"].items():
        error, r = one["error"], one["pearson"]
        models.add_row(
            name,
            f"{one['true']:.2%}",
            f"{one['estimated']:.2%}",
            f"{error['value']:+.2%} ({error['low']:+.2%} to {error['high']:+.2%})",
            f"{r['value']:.3f}" if r else "–",
            f"{gc[name]:.3f}",
        )
    responses = _table("per response, all models", "Pearson (95 %)", "Spearman", "Kendall", "n")
    for name, one in (
        ("FaithScore", found["faithscore"]["per_response"]),
        ("VALOR faithfulness", found["valor"]["faithfulness"]),
        ("VALOR coverage", found["valor"]["coverage"]),
        ("Tri-HE", found["tri_he"]["per_response"]),
    ):
        r = one["pearson"]
        responses.add_row(
            name,
            f"{r['value']:.3f} ({r['low']:.3f} to {r['high']:.3f})" if r else "–",
            *(f"{one[key]['value']:.3f}" if one[key] else "–" for key in ("spearman", "kendall")),
            str(one["n"]),
        )
    detector = _table("detector, by boxes", "statements", "undecided", "right of the others", "Brier", "ECE")
    for name, one in found["detector"].items():
        shares = (f"{one['undecided']:.1%}", f"{one['right']:.3f}" if one["right"] is not None else "–")
        off = (f"{one['brier']:.4f}", f"{one['calibration_error']:.4f}")
        detector.add_row(name, str(one["statements"]), *shares, *off)
    cascade = _table(
        "judges in a row, of the same facts", "true", "cascade", "wrong", "last judge alone", "wrong"
    )
    for row in rows(found["cascade"]):
        cascade.add_row(*row)
    promises = _table("promise", "wanted", "found", "holds")
    for name, one in found["promises"].items():
        value = one["found"]
        shown = f"{value:.3f}" if isinstance(value, float) else str(value)
        holds = "yes" if one["holds"] else styled(("no", "red"))
        promises.add_row(name.replace("_", " "), one["promised"], shown, holds)
    title = f"The monitor against the known truth of {found['scenes']} scenes for each model"
    return Group(title, "", models, responses, detector, cascade, promises, f"{found['seconds']:.0f} s")


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
