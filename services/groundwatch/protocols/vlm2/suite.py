"""Questions about sequences of images, and the figures of a model that answered them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from groundwatch.protocols.published import Place, json_lines
from groundwatch.protocols.suite import Images, Pair, Picture, Question, files
from groundwatch.protocols.tally import Result
from groundwatch.protocols.vlm2.outcomes import score_outcomes
from groundwatch.protocols.vlm2.protocol import LEVEL, SEQUENCE, TASK, TRUTH, Vlm2
from groundwatch.protocols.vlm2.tally import tally_scored
from groundwatch.statistics.intervals import Moments, mean_interval


def read_suite(folder: Path, images: Images) -> Iterator[Question | None]:
    """JSON lines of {sequence, task, images, coarse: {question, truth}, fine: [{question, truth}]}."""
    for path in files(folder, "*.jsonl", "JSON lines of sequences"):
        for place, record in json_lines(path):
            sequence = str(place.take(record, "sequence", (str, int), "the sequence's name"))
            task = place.take(record, "task", str, "a string")
            named = place.take(record, "images", list, "the names of the sequence's images")
            pictures = [images.picture(str(name)) for name in named]
            fine = place.take(record, "fine", list, "a list of questions")
            asked = [("coarse", place.take(record, "coarse", dict, "a question"))]
            asked += [("fine", one) for one in fine]
            for number, (level, one) in enumerate(asked):
                yield _of_sequence(place, sequence, task, level, number, one, pictures)


def _of_sequence(
    place: Place,
    sequence: str,
    task: str,
    level: str,
    number: int,
    one: object,
    pictures: list[Picture | None],
) -> Question | None:
    place = place._replace(what=f"key '{level}'")
    if not isinstance(one, dict):
        raise place.wrong("expected an object with question and truth")
    text = place.take(one, "question", str, "a string")
    truth = place.take(one, "truth", (str, bool, int, float), "yes, no, a number or a string")
    there = tuple(picture for picture in pictures if picture is not None)
    if not there or len(there) < len(pictures):
        return None
    told = {True: "yes", False: "no"}[truth] if isinstance(truth, bool) else str(truth)
    return Question(
        id=f"{task}-{sequence}-{number}",
        protocol=Vlm2.name,
        prompt=text,
        images=there,
        tags={SEQUENCE: sequence, TASK: task, LEVEL: level, TRUTH: told},
        unit=f"{task}-{sequence}",
    )


def figures(pairs: Sequence[Pair]) -> Result:
    place = Place(Path("probe"), 0)
    scored = score_outcomes((place, outcome) for _, outcome in pairs)
    moments = Moments()
    for one in scored:
        if one.score is not None:
            moments.add(one.score)
    return {**tally_scored(scored), "score_mean_interval": mean_interval(moments, bounds=(0.0, 1.0))}
