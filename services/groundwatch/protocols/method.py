"""What a package of protocols holds: them, and their benchmark.

What lies in a room above (engines, the miniature world) is carried as "module:attribute" and loaded when it
is wanted: `load` of `base`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from groundwatch.errors import FileFormatError, UsageError
from groundwatch.events import ChainAdvanced, Reference, ResponseRecorded, ResponseScored
from groundwatch.protocols.base import ChainProtocol, EvaluationProtocol
from groundwatch.section import Section
from groundwatch.statistics.intervals import Interval, Moments, mean_interval

if TYPE_CHECKING:
    from groundwatch.terminal import RenderableType

Progress = Callable[[str, int, int], None]
"""Told what is being done, how many are done, and of how many."""

ReadResponses = Callable[[Path], Iterable[ResponseRecorded]]
"""Reads the recorded responses of a file."""

Result = dict[str, object]
"""Numbers by name, as `--json` prints them: a number that does not exist is None, never 0."""


class TallyRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to count: the file, and what else was given; None stands for what was not.

    `subset` is the part of a benchmark that the file belongs to, `t` the length of a chain, `labels` the
    file of labels beside a file of answers, or the folder of the benchmark's files. `share` and `tokens` ask
    where the hallucinations are: on this share of object pairs, and within the first tokens of an answer.
    """

    file: Path
    subset: str | None = None
    t: int | None = None
    labels: Path | None = None
    share: float | None = None
    tokens: tuple[int, ...] | None = None

    @property
    def given(self) -> dict[str, object]:
        fields = msgspec.structs.asdict(self)
        return {name: value for name, value in fields.items() if name != "file" and value is not None}


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """One protocol's tally.

    `compute` reads the request's file and counts; it raises `FileFormatError` naming file, line and key.
    `needs` maps what must be given to what to say of it, `takes` is what may be. A file of outcomes is for
    `compute` if it reads `outcomes`, else the report is printed.
    """

    compute: Callable[[TallyRequest], Result]
    needs: Mapping[str, str] = {}
    takes: frozenset[str] = frozenset()
    outcomes: bool = False

    def run(self, name: str, request: TallyRequest) -> Result:
        """The result; raises `UsageError` for what is missing or what this tally does not take."""
        for given in request.given:
            if given not in self.takes and given not in self.needs:
                raise UsageError(f"recorded judgements of {name} take no {given}", given)
        for needed, meaning in self.needs.items():
            if needed not in request.given:
                raise UsageError(f"recorded judgements of {name} need {needed}: {meaning}", needed)
        return self.compute(request)


CATEGORY = "category"
IMAGE = "image"
IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp")


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """An image that is read when it is wanted. `load` raises `OSError` when it cannot be."""

    name: str
    load: Callable[[], bytes]


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to ask: `id` is its own within the suite, `protocol` says how the answer is scored.

    `reference` and `tags` are the truth, as that protocol reads it from a response; `unit` names what
    questions have in common that are not independent of each other, such as their image.
    """

    id: str
    protocol: str
    prompt: str
    images: tuple[Picture, ...]
    reference: Reference | None = None
    tags: dict[str, str] = {}
    unit: str = ""

    def response(self, model: str) -> ResponseRecorded:
        return ResponseRecorded(
            id=self.id,
            model=model,
            answer="",
            prompt=self.prompt,
            reference=self.reference,
            tags=self.tags,
            protocols=(self.protocol,),
        )


class Images:
    """The images under a folder, by file name, by its stem, or by the path below the folder."""

    def __init__(self, folder: Path, read: Callable[[Path], bytes]) -> None:
        if not folder.is_dir():
            raise UsageError(f"{folder}: is not a folder of images")
        self._read = read
        self.paths = [
            path
            for path in sorted(folder.rglob("*"))
            if path.suffix.lower() in IMAGE_ENDINGS and path.is_file()
        ]
        self._found = {path.stem: path for path in self.paths} | {path.name: path for path in self.paths}
        self._found |= {path.relative_to(folder).as_posix(): path for path in self.paths}

    def picture(self, name: str) -> Picture | None:
        path = self._found.get(name)
        return None if path is None else self.at(path)

    def at(self, path: Path) -> Picture:
        return Picture(name=path.name, load=partial(self._read, path))


Pair = tuple[Question, ResponseScored]
"""A question, and the outcome of the answer to it."""


def files(folder: Path, pattern: str, what: str) -> list[Path]:
    found = sorted(folder.glob(pattern))
    if not found:
        raise FileFormatError(folder, f"holds no {what}")
    return found


def mean_of(values: Iterable[float | None], bounds: tuple[float, float] = (0.0, 1.0)) -> Interval | None:
    """The mean of the values that there are, with its interval; None without any."""
    moments = Moments()
    for value in values:
        if value is not None:
            moments.add(value)
    return mean_interval(moments, bounds=bounds)


def mean_score(pairs: Sequence[Pair], bounds: tuple[float, float] = (0.0, 1.0)) -> Result:
    return {"score": mean_of((outcome.score for _, outcome in pairs), bounds), "answers": len(pairs)}


class MethodSettings(Section):
    """What can be set of a method, in the section `protocols.NAME` of the settings."""

    def protocols(self) -> tuple[EvaluationProtocol, ...]:
        """The protocols with these settings."""
        raise NotImplementedError


class CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a command prints: `table` to people who did not ask for JSON, `problem` if it failed in part."""

    numbers: Result
    table: RenderableType | None = None
    problem: str = ""


class Benchmark(msgspec.Struct, frozen=True, kw_only=True):
    """What a work published beside its method: files, questions, results.

    `tally` is its arithmetic over recorded judgements, in the format that the work published. `answers` are
    those in a file of the work's own format, None when the file is not in it; `annotate` are the answers of
    a file, with references from its benchmark's annotation. `suite` are the questions of its benchmark in a
    folder, None for one whose image is not there; `figures` is what the paper reports of their outcomes, and
    `chain_figures` of chains of a length. `package` holds the paper's tables, as files `table-*.json`.

    The others are "module:function". `file_judge` judges a file of the work's own format in place of the
    protocols, `world` asks about scenes of the miniature world. `validation` (how far its judges agree with
    people) and `dataset` (builds its benchmark as the paper did) are commands: the function's parameters
    are the command's, those before `*` its arguments, the others its options, described by `msgspec.Meta`.
    It is given `settings` and `progress` if it takes them, and returns its numbers or a `CommandResult`.
    """

    tally: Tally | None = None
    answers: Callable[[Path], Sequence[ResponseRecorded] | None] | None = None
    annotate: Callable[[Path, Path, ReadResponses], list[ResponseRecorded]] | None = None
    file_judge: str = ""
    validation: str = ""
    dataset: str = ""
    suite: Callable[[Path, Images], Iterable[Question | None]] | None = None
    world: str = ""
    figures: Callable[[Sequence[Pair]], Result] = mean_score
    chain_figures: Callable[[Sequence[ChainAdvanced], int], Result] | None = None
    package: str = ""


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """A published method of evaluation: one protocol of its name, or one for each of its subsets.

    Its `benchmark` may be in another package: `registry.benchmark`.
    """

    name: str
    protocols: tuple[EvaluationProtocol, ...]
    settings: type[MethodSettings] | None = None
    benchmark: Benchmark | None = None

    @property
    def chain(self) -> ChainProtocol | None:
        return next((one for one in self.protocols if isinstance(one, ChainProtocol)), None)
