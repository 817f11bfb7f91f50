"""What each suite asks about scenes of the miniature world, whose truth is known."""

from collections import Counter
from collections.abc import Callable, Iterator
from random import Random

from groundwatch.events import KnownFact, Reference
from groundwatch.miniature.language import PROMPTS, counted, relations, sentence
from groundwatch.miniature.world import KINDS, PLACES, Scene, changed
from groundwatch.protocols.genception.protocol import GenCeption
from groundwatch.protocols.method import CATEGORY, Question
from groundwatch.protocols.pope.protocol import Pope
from groundwatch.protocols.questions import ANSWERS, Answer
from groundwatch.protocols.valor.scoring import Subset
from groundwatch_benchmarks.methods.amber import suite as amber_suite
from groundwatch_benchmarks.methods.amber.protocol import Existence
from groundwatch_benchmarks.methods.amber.scoring import EXISTENCE, Annotation
from groundwatch_benchmarks.methods.dash_b.suite import DashB
from groundwatch_benchmarks.methods.faithscore import suite as faithscore_suite
from groundwatch_benchmarks.methods.trihe import suite as trihe_suite
from groundwatch_benchmarks.methods.trihe.files import AnnotatedImage
from groundwatch_benchmarks.methods.valor import suite as valor_suite
from groundwatch_benchmarks.methods.vlm2 import suite as vlm2_suite
from groundwatch_benchmarks.methods.yes_no import ask, question
from groundwatch_benchmarks.miniature_facts import objects, pair_questions, picture, triplets
from groundwatch_benchmarks.pope import STRATEGIES, build

Questions = Iterator[Question]


def amber(shown: list[Scene]) -> Questions:
    """To describe it, and what is there: its model knows no questions about attributes or relations."""
    for at, one in enumerate(shown):
        there, image = objects(one), f"scene-{at}"
        gone = tuple(kind for kind in KINDS if kind not in there)
        drawn = picture(one, image)
        known = Annotation(truth=there, hallu=gone, listed=frozenset(KINDS))
        yield amber_suite.description(image, PROMPTS[0][0], known, image, drawn)
        for name, label in ((there[0], "yes"), (gone[at % len(gone)], "no")):
            asked = (Existence.name, f"{image}-{name}", ask(name), ANSWERS[label], image, drawn)
            yield question(*asked, EXISTENCE)


def dash_b(shown: list[Scene]) -> Questions:
    """A thing that is there, and one that is not."""
    for at, one in enumerate(shown):
        there, image = objects(one), f"scene-{at}"
        gone = [kind for kind in KINDS if kind not in there]
        for name in (there[0], gone[at % len(gone)]):
            label: Answer = "yes" if name in there else "no"
            drawn = picture(one, image)
            yield question(DashB.name, f"{at}-{name}", ask(name), label, image, drawn, name)


MANNERS = {"detailed-description": 0, "conversation": 1, "complex-question": 5, faithscore_suite.CAPTION: 4}


def faithscore(shown: list[Scene]) -> Questions:
    """Its kinds of questions are the world's manners of answering."""
    for at, one in enumerate(shown):
        image = f"scene-{at}"
        for task, manner in MANNERS.items():
            asked = faithscore_suite.Asked(PROMPTS[manner][at % len(PROMPTS[manner])], task)
            yield faithscore_suite.question(f"{at}-{task}", asked, image, picture(one, image), known(one))


def known(shown: Scene) -> Reference:
    """All of a scene: things, how many of each kind, what they are like, where they are and are not."""
    numbers = Counter(thing.kind for thing in shown.things)
    said = (f"there {'is' if many == 1 else 'are'} {counted(kind, many)}" for kind, many in numbers.items())
    facts = dict.fromkeys(said, True)
    places = {kind: {thing.place for thing in shown.of_kind(kind)} for kind in numbers}
    for kind, taken in places.items():
        facts |= {f"the {kind} is in the {place} corner": place in taken for place in PLACES}
    return Reference(
        facts=tuple(KnownFact(text=sentence(text), holds=holds) for text, holds in facts.items()),
        objects=objects(shown),
        triplets=triplets(shown),
        complete=True,
    )


def genception(shown: list[Scene]) -> Questions:
    """Seeds of chains."""
    for at, one in enumerate(shown):
        yield Question(
            id=f"scene-{at}",
            protocol=GenCeption.name,
            prompt="",
            images=(picture(one, f"scene-{at}"),),
            tags={CATEGORY: f"{len(one.things)} things"},
            unit=f"scene-{at}",
        )


def pope(shown: list[Scene]) -> Questions:
    """Of each strategy the objects that it draws."""
    by_name = {f"scene-{at}": one for at, one in enumerate(shown)}
    named = {name: objects(one) for name, one in by_name.items()}
    for strategy in STRATEGIES:
        for one in build(named, strategy, pool=KINDS):
            drawn, name = picture(by_name[one.image], one.image), f"{strategy}-{one.question_id}"
            yield question(Pope.name, name, one.text, one.label, one.image, drawn, strategy)


def trihe(shown: list[Scene]) -> Questions:
    """Descriptions, against the scene graph."""
    for at, one in enumerate(shown):
        image = AnnotatedImage(image=f"scene-{at}", triplets=triplets(one), objects=objects(one))
        for number, prompt in enumerate((PROMPTS[0][0], PROMPTS[3][0])):
            yield trihe_suite.question(f"{at}-{number}", prompt, image, picture(one, image.image))


def valor(shown: list[Scene]) -> Questions:
    """People, and things in order of size, are not in this world."""
    for subset, features in _FEATURES.items():
        for at, one in enumerate(shown):
            if found := features(one):
                image = f"scene-{at}"
                yield valor_suite.question(
                    subset, image, PROMPTS[0][0], found, picture(one, image), name=str(at)
                )


def _attributes(shown: Scene) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"({thing.color}, {thing.kind})" for thing in shown.things))


def _positions(shown: Scene) -> tuple[str, ...]:
    by_words = [
        f"the {first.kind} is {word} the {second.kind}"
        for at, first in enumerate(shown.things)
        for second in shown.things[at + 1 :]
        if first.kind != second.kind
        for word in relations(first, second)
        if "than" not in word
    ]
    return tuple(dict.fromkeys(by_words))


_FEATURES: dict[Subset, Callable[[Scene], tuple[str, ...]]] = {
    Subset.OBJECT_EXISTENCE: objects,
    Subset.ATTRIBUTE_OBJECT: _attributes,
    Subset.RELATION_POSITIONAL: _positions,
}


SEED = 4 * 10**9


def vlm2(shown: list[Scene]) -> Questions:
    """What two scenes have in common."""
    random = Random(SEED)
    for at, first in enumerate(shown):
        second = changed(first, random.choice((0, 1, 2)), random)
        pictures = (picture(first, f"scene-{at}-1"), picture(second, f"scene-{at}-2"))
        asked = list(pair_questions(first, second, random, 4))
        for number, (text, holds) in enumerate(asked):
            yield vlm2_suite.question(
                str(at), "pair", number, len(asked), text, "yes" if holds else "no", pictures
            )
