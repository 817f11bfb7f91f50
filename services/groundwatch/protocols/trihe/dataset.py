"""Tri-HE, appendix E.2: questions about images, written by a model that looks at them; a draft to check."""

import asyncio
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from pydantic import ValidationError

from groundwatch.errors import InputError, TransientError, Unscorable, UsageError
from groundwatch.events import Usage
from groundwatch.models.openai.judge import ChatModel
from groundwatch.models.openai.settings import ChatSettings
from groundwatch.protocols.method import CommandResult, Progress
from groundwatch.protocols.published import json_members
from groundwatch.protocols.scene_graphs import ImageGraph, read_scene_graphs
from groundwatch.protocols.trihe.asking import (
    QUESTIONS,
    RELATIONS,
    benchmark_entry,
    prompt_digest,
    question_step,
    read_questions,
    rich_enough,
)
from groundwatch.protocols.trihe.published import read_benchmark
from groundwatch.runtime.settings import IntakeSettings, Settings
from groundwatch.runtime.stores.image_reading import read_image_file
from groundwatch.runtime.stores.images import check_image
from groundwatch.section import in_words

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif"})
UNAVAILABLE, NO_IMAGE = "unavailable", "no_image"


async def build_dataset(
    images: Annotated[Path, msgspec.Meta(description="A folder of images, named by their ids.")],
    *,
    out: Annotated[
        Path,
        msgspec.Meta(
            description="The benchmark's file; images that it has already are not asked about again."
        ),
    ],
    scene_graphs: Annotated[
        Path | None, msgspec.Meta(description="Their scene graphs in GQA's format (JSON).")
    ] = None,
    relations: Annotated[
        int, msgspec.Meta(ge=0, description="Different relations that an image's graph must have.")
    ] = RELATIONS,
    questions: Annotated[
        int, msgspec.Meta(ge=1, le=50, description="Questions about each image.")
    ] = QUESTIONS,
    limit: Annotated[int | None, msgspec.Meta(ge=1, description="So many images at most.")] = None,
    url: Annotated[
        str,
        msgspec.Meta(description="An OpenAI-compatible endpoint of a model that looks at images, with /v1."),
    ] = "",
    model: Annotated[str, msgspec.Meta(description="The model's name there.")] = "",
    api_key_env: Annotated[
        str, msgspec.Meta(description="The variable that holds the endpoint's key.")
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
    asking = _Asking(chat, graphs or {}, entries, out, questions, settings.gateway.intake)
    try:
        await asking.ask([(name, files[name]) for name in rich[:limit]], progress)
    finally:
        await asking.close()
    written = [entries[name] for name in rich[:limit] if name in entries]
    failed = asking.failed.total()
    return CommandResult(
        numbers={
            "model": chat.model,
            "prompt": prompt_digest(),
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


class _Asking:
    """The images of one command, a few at a time."""

    def __init__(
        self,
        settings: ChatSettings,
        graphs: Mapping[str, ImageGraph],
        entries: dict[str, Any],
        out: Path,
        questions: int,
        limits: IntakeSettings,
    ) -> None:
        self.failed: Counter[str] = Counter()
        self.trouble = ""
        self.usage = Usage()
        self._chat = ChatModel(settings)
        self._concurrency = settings.concurrency
        self._graphs = graphs
        self._entries = entries
        self._out = out
        self._questions = questions
        self._limits = limits

    async def ask(self, images: Sequence[tuple[str, Path]], progress: Progress) -> None:
        """Ask about each; what fails is counted."""
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
            _replace(self._out, self._entries)
        await asyncio.gather(*(work() for _ in range(min(self._concurrency, len(images)))))

    async def close(self) -> None:
        """Close the endpoint."""
        await self._chat.close()

    async def _one(self, name: str, path: Path) -> None:
        graph = self._graphs.get(name)
        try:
            data = await asyncio.to_thread(read_image_file, path, max_bytes=self._limits.max_image_bytes)
            image = await asyncio.to_thread(check_image, data, self._limits)
            completion = await self._chat.complete(
                question_step(graph, self._questions),
                [(image.data, image.media_type)],
                check=lambda reply: read_questions(reply, self._questions),
            )
        except (OSError, InputError) as error:
            self._fail(NO_IMAGE, f"{path}: {error}")
        except Unscorable as error:
            self._fail(error.reason, f"{path}: {error}")
        except TransientError as error:
            self._fail(UNAVAILABLE, str(error))
        else:
            self.usage += completion.usage
            self._entries[name] = benchmark_entry(graph, read_questions(completion.reply, self._questions))
            _replace(self._out, self._entries)

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
    return {piece.key: piece.value for piece in json_members(out)}


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
