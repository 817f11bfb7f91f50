"""Building a benchmark as Tri-HE was built: questions that need a conclusion, asked of a model that looks.

Source: section 4 and appendix E.2. From scene graphs in GQA's format those images are taken that have
enough different relations; a vision-language model then writes questions about each, with answers and the
triplets that explain them, which are added to the graph's. What it writes is a draft: the paper's authors
checked every question by hand.
"""

import asyncio
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from pydantic import ValidationError

from groundwatch.errors import InputError, TransientError, Unscorable, UsageError
from groundwatch.events import Usage
from groundwatch.image_files import read_image_file
from groundwatch.models.openai import ChatModel
from groundwatch.models.settings import ChatSettings
from groundwatch.protocols.method import CommandResult, Progress
from groundwatch.protocols.prompts import Form, Step, load, marked, quoted, read_reply
from groundwatch.protocols.triplets import Triplet
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.stores.images import check_image
from groundwatch.section import in_words
from groundwatch_benchmarks.datasets.scene_graphs import ImageGraph, read_scene_graphs
from groundwatch_benchmarks.json_files import json_images
from groundwatch_benchmarks.methods.trihe.files import Asked, read_benchmark

PROMPTS = "groundwatch.protocols.trihe"
QUESTIONS = 10
"""How many questions the paper asks for about each image."""

RELATIONS = 6
"""Different relations that an image's graph must have: the paper takes images with more than five."""

_NOT_IN_PARTS = re.compile(r"[,;()\[\]\s]+")


class _Triplet(Form, frozen=True):
    object1: str
    relation: str
    object2: str


class _Question(Form, frozen=True):
    question: str
    answer: str
    triplets: list[_Triplet]


class _Questions(Form, frozen=True):
    questions: list[_Question]


def question_step(graph: ImageGraph | None, number: int = QUESTIONS) -> Step:
    """The call that writes questions; the image goes with it. `graph` only lends its names."""
    lines = "\n".join(dict.fromkeys(quoted(one.name) for one in graph.things) if graph else ())
    return load(PROMPTS, "ask").step(_Questions, number=str(number), scene=lines or "(not known)")


def read_questions(reply: object, number: int = QUESTIONS) -> tuple[Asked, ...]:
    """The questions of a reply, each once. Raises `ValueError` saying what is wrong with it.

    Fewer than asked for will do, none will not; more are an error, since nobody knows which are meant.
    """
    found: dict[str, Asked] = {}
    written = read_reply(reply, _Questions).questions
    if not 0 < len(written) <= number:
        raise ValueError(f"{len(written)} questions, where {number} were asked for")
    for at, one in enumerate(written):
        question, answer = " ".join(one.question.split()), " ".join(one.answer.split())
        named = ((each.object1, each.relation, each.object2) for each in one.triplets)
        triplets = tuple(dict.fromkeys(map(_plain, named)))
        if not question or not answer:
            raise ValueError(f"question {at} or its answer is empty")
        if not triplets or not all(part for triplet in triplets for part in triplet):
            raise ValueError(f"question {at} has no triplet, or one with an empty part")
        found.setdefault(question.casefold(), Asked(question=question, answer=answer, triplets=triplets))
    return tuple(found.values())


def rich_enough(graph: ImageGraph, relations: int = RELATIONS) -> bool:
    return len({name for thing in graph.things for name, _ in thing.relations}) >= relations


def benchmark_entry(graph: ImageGraph | None, questions: Iterable[Asked]) -> dict[str, Any]:
    asked = list(questions)
    known = [
        _plain((thing.name, relation, other))
        for thing in (graph.things if graph else ())
        for relation, other in (*(("is", attribute) for attribute in thing.attributes), *thing.relations)
    ]
    explained = [triplet for one in asked for triplet in one.triplets]
    names = [thing.name for thing in graph.things] if graph else []
    own = [name for triplet in explained for name in (triplet[0], triplet[2])]
    return {
        "instance": [
            {
                "question": one.question,
                "answer": one.answer,
                "triplet": [triplet_text(triplet) for triplet in one.triplets],
            }
            for one in asked
        ],
        "triplets": [triplet_text(triplet) for triplet in dict.fromkeys((*known, *explained))],
        "all_object": names,
        "object": list(dict.fromkeys((*names, *own))),
    }


def triplet_text(triplet: Triplet) -> str:
    return f"({', '.join(triplet)})"


def _plain(triplet: Triplet) -> Triplet:
    """Without what separates parts and triplets in the file, so that it reads back as it was written."""
    first, relation, second = (_NOT_IN_PARTS.sub(" ", part).strip(" '\"") for part in triplet)
    return first, relation, second


IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif"})
UNAVAILABLE, NO_IMAGE = "unavailable", "no_image"


async def build_dataset(
    images: Annotated[Path, Meta(description="A folder of images, named by their ids.")],
    *,
    out: Annotated[
        Path, Meta(description="The benchmark's file; images that it has already are not asked about again.")
    ],
    scene_graphs: Annotated[
        Path | None, Meta(description="Their scene graphs in GQA's format (JSON).")
    ] = None,
    relations: Annotated[
        int, Meta(ge=0, description="Different relations that an image's graph must have.")
    ] = RELATIONS,
    questions: Annotated[int, Meta(ge=1, le=50, description="Questions about each image.")] = QUESTIONS,
    limit: Annotated[int | None, Meta(ge=1, description="So many images at most.")] = None,
    url: Annotated[
        str, Meta(description="An OpenAI-compatible endpoint of a model that looks at images, with /v1.")
    ] = "",
    model: Annotated[str, Meta(description="The model's name there.")] = "",
    api_key_env: Annotated[
        str, Meta(description="The variable that holds the endpoint's key.")
    ] = "OPENAI_API_KEY",
    settings: Settings,
    progress: Progress,
) -> CommandResult:
    """Have a vision-language model write questions about images (Tri-HE, appendix E.2): a draft to check.

    The model is the one named here, else that of the setting `verification.llm`. The file is whole after
    each image. An endpoint that cannot be reached ends the asking, an image that gets no usable reply does
    not.
    """
    files = _files(images)
    graphs = None
    if scene_graphs is not None:
        graphs = {graph.image_id: graph for graph in read_scene_graphs(scene_graphs)}
    entries = _entries(out)
    known = [name for name in files if name in entries]
    fresh = [name for name in files if name not in entries]
    with_graph = [name for name in fresh if graphs is None or name in graphs]
    rich = [name for name in with_graph if graphs is None or rich_enough(graphs[name], relations)]
    chat = _chat(settings, url, model, api_key_env)
    asking = _Asking(ChatModel(chat), graphs or {}, entries, out, questions, settings.gateway.intake)
    try:
        await asking.ask([(name, files[name]) for name in rich[:limit]], chat.concurrency, progress)
    finally:
        await asking.chat.close()
    written = [entries[name] for name in rich[:limit] if name in entries]
    failed = asking.failed.total()
    return CommandResult(
        numbers={
            "model": chat.model,
            "prompt": marked(load(PROMPTS, "ask").digest, [load(PROMPTS, "ask")]),
            "images": len(written),
            "questions": sum(len(entry["instance"]) for entry in written),
            "triplets": sum(len(one["triplet"]) for entry in written for one in entry["instance"]),
            "known": len(known),
            "too_few_relations": len(with_graph) - len(rich),
            "without_graph": len(fresh) - len(with_graph),
            "failed": dict(asking.failed),
            "trouble": asking.trouble,
            "usage": msgspec.to_builtins(asking.usage),
        },
        problem=f"{failed} images have no questions ({asking.trouble}): "
        f"the same command again asks for those that {out} lacks"
        if failed
        else "",
    )


@dataclass
class _Asking:
    chat: ChatModel
    graphs: Mapping[str, ImageGraph]
    entries: dict[str, Any]
    out: Path
    questions: int
    limits: IntakeSettings
    failed: Counter[str] = field(default_factory=Counter)
    trouble: str = ""
    usage: Usage = field(default_factory=Usage)

    async def ask(self, images: Sequence[tuple[str, Path]], at_once: int, progress: Progress) -> None:
        waiting = list(reversed(images))

        async def work() -> None:
            while waiting:
                await self._one(*waiting.pop())
                if self.failed[UNAVAILABLE]:
                    # Nobody is there to ask: those that wait have failed for the same reason.
                    self.failed[UNAVAILABLE] += len(waiting)
                    waiting.clear()
                progress("asking for questions", len(images) - len(waiting), len(images))

        if images:
            _replace(self.out, self.entries)
        await asyncio.gather(*(work() for _ in range(min(at_once, len(images)))))

    async def _one(self, name: str, path: Path) -> None:
        graph = self.graphs.get(name)
        try:
            data = await asyncio.to_thread(read_image_file, path, max_bytes=self.limits.max_image_bytes)
            image = await asyncio.to_thread(check_image, data, self.limits)
            completion = await self.chat.complete(
                question_step(graph, self.questions),
                [(image.data, image.media_type)],
                check=lambda reply: read_questions(reply, self.questions),
            )
        except (OSError, InputError) as error:
            self._fail(NO_IMAGE, f"{path}: {error}")
        except Unscorable as error:
            self._fail(error.reason, f"{path}: {error}")
        except TransientError as error:
            self._fail(UNAVAILABLE, str(error))
        else:
            self.usage += completion.usage
            self.entries[name] = benchmark_entry(graph, read_questions(completion.reply, self.questions))
            _replace(self.out, self.entries)

    def _fail(self, reason: str, told: str) -> None:
        self.failed[reason] += 1
        self.trouble = told


def _files(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder")
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() not in IMAGE_SUFFIXES or path.is_symlink() or not path.is_file():
            continue
        if path.stem in found:
            raise UsageError(f"{path}: the folder has two images of the name '{path.stem}'")
        found[path.stem] = path
    if not found:
        raise UsageError(f"{folder}: holds no image ({', '.join(sorted(IMAGE_SUFFIXES))})")
    return found


def _entries(out: Path) -> dict[str, Any]:
    """What an earlier run wrote; it must be a benchmark, lest another file be overwritten."""
    if not out.exists():
        return {}
    read_benchmark(out)
    return {image: value for _, image, value in json_images(out)}


def _replace(out: Path, entries: Mapping[str, Any]) -> None:
    """Write beside, then rename: a command that is cut off leaves the file as it was."""
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        beside.write_bytes(
            msgspec.json.format(msgspec.json.encode(dict(sorted(entries.items()))), indent=1) + b"\n"
        )
        beside.replace(out)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise UsageError(f"{out}: cannot be written ({error.strerror or error})") from error


def _chat(settings: Settings, url: str, model: str, api_key_env: str) -> ChatSettings:
    if not url and not model:
        if settings.verification.llm is None:
            why = "name a model that looks at images, here or in the setting verification.llm"
            raise UsageError(why, "url", "model")
        return settings.verification.llm
    try:
        return ChatSettings(base_url=url, model=model, api_key_env=api_key_env)
    except ValidationError as error:
        raise UsageError(in_words(error), "url", "model") from error
