"""FaithScore's published annotations: what people said of each sub-sentence and each atomic fact.

One JSON object a line: `id` (the image), `answer`, `stage 1` (sub-sentence to 1 for descriptive, 0 for
analytical) and `stage 2` (atomic fact to 1 for in the image, 0 for hallucinated).
"""

from pathlib import Path

import msgspec

from groundwatch.errors import UNDECODED, FileFormatError
from groundwatch.events import KnownFact, Label, Reference, ResponseRecorded
from groundwatch.protocols.published import UNNAMED_MODEL


class AnnotatedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer as people annotated it. Several answers share an image.

    `labels` maps sub-sentences, in the answer's order and without surrounding white space, to their label;
    `facts` maps atomic facts to whether they hold in the image.
    """

    image: str
    answer: str
    labels: dict[str, Label]
    facts: dict[str, bool]


def read_annotations(path: str | Path) -> list[AnnotatedAnswer]:
    """Read a file of annotations; empty lines are skipped.

    Raises `FileFormatError` naming file, line and key.
    """
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise FileFormatError(path, f"cannot be read ({error.strerror or error})") from error
    return [_read(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def _read(path: str | Path, number: int, line: bytes) -> AnnotatedAnswer:
    try:
        record = msgspec.json.decode(line)
    except UNDECODED as error:
        raise FileFormatError(path, f"not JSON ({error})", line=number) from error
    if not isinstance(record, dict):
        raise FileFormatError(path, "expected a JSON object", line=number)
    texts = {}
    for key in ("id", "answer"):
        if not isinstance(record.get(key), str):
            raise FileFormatError(path, f"key '{key}': expected a string", line=number)
        texts[key] = record[key]
    labels = _judgements(path, number, record, "stage 1")
    return AnnotatedAnswer(
        image=texts["id"],
        answer=texts["answer"],
        labels={
            text.strip(): Label.DESCRIPTIVE if descriptive else Label.ANALYTICAL
            for text, descriptive in labels.items()
        },
        facts=_judgements(path, number, record, "stage 2"),
    )


def _judgements(path: str | Path, number: int, record: dict[str, object], key: str) -> dict[str, bool]:
    judgements = record.get(key)
    if not isinstance(judgements, dict):
        raise FileFormatError(path, f"key '{key}': expected an object of texts to 1 or 0", line=number)
    for text, value in judgements.items():
        if isinstance(value, float) or value not in (0, 1):
            raise FileFormatError(path, f"key '{key}', '{text}': expected 1 or 0", line=number)
    return {text: bool(value) for text, value in judgements.items()}


def is_annotation(path: str | Path) -> bool:
    """Whether the first line that says something is FaithScore's: it has a key `stage 1` or `stage 2`.

    Raises `FileFormatError` when the file cannot be read.
    """
    try:
        with Path(path).open("rb") as stream:
            first = next((line for line in stream if line.strip()), b"")
    except OSError as error:
        raise FileFormatError(path, f"cannot be read ({error.strerror or error})") from error
    try:
        record = msgspec.json.decode(first)
    except UNDECODED:
        return False
    return isinstance(record, dict) and not record.keys().isdisjoint(("stage 1", "stage 2"))


def annotated_response(number: int, annotated: AnnotatedAnswer) -> ResponseRecorded:
    """An annotated answer as a recorded response whose reference is people's facts.

    Several answers share an image, so `number` makes the id.
    """
    return ResponseRecorded(
        id=f"{annotated.image}-{number}",
        model=UNNAMED_MODEL,
        answer=annotated.answer,
        reference=Reference(
            facts=tuple(KnownFact(text=text, holds=holds) for text, holds in annotated.facts.items())
        ),
        tags={"image": annotated.image},
    )


def read_answers(path: Path) -> list[ResponseRecorded] | None:
    """The annotated answers as recorded responses; None for a file of another kind."""
    if not is_annotation(path):
        return None
    return [annotated_response(number, one) for number, one in enumerate(read_annotations(path), start=1)]
