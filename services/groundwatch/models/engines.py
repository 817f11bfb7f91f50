"""What the engines of all stages share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeVar

from groundwatch.errors import (
    GroundwatchError,
    InputError,
    MissingExtraError,
    SettingsError,
    TransientError,
    Unscorable,
    UsageError,
    words,
)
from groundwatch.events import Judge
from groundwatch.models.embeddings import SentenceEmbedder, embedder
from groundwatch.models.replies import Image
from groundwatch.models.settings import ChatSettings
from groundwatch.orientation import upright_file
from groundwatch.protocols.base import EvaluationProtocol, Stage, load

if TYPE_CHECKING:
    from groundwatch.models.openai import ChatModel

T = TypeVar("T")
R = TypeVar("R")

LoadImage: TypeAlias = Callable[[str], Awaitable[Image]]
"""From an image's SHA-256 digest to its bytes and media type.

Raises `LookupError` or `FileNotFoundError` for an image that is not there.
"""


class Engine(Protocol):
    """What all engines have in common; settings choose one by its name.

    `batch` is how many events it likes to see at once: 1 where it waits for somebody else (it is called
    concurrently instead), more where it computes. One that loads something big also has
    `async def warm_up()`: its service is ready only after it. One that waits for a server has `at_once`, how
    many calls that server takes, and one that knows whether its models are there has `problems()`, which are
    its service's too. `judges` is how many models there are of which an event asks one, where there are
    several: when one is away, the others' events go on.
    """

    batch: int

    async def close(self) -> None:
        """Let go of connections and threads."""
        return


class LlmEngine:
    """Asks any model behind an OpenAI-compatible endpoint, in the words of each protocol.

    `version` is part of the judge's name: raised when the same prompts could give other results.
    """

    batch = 1
    stage: ClassVar[Stage]
    version: ClassVar[str]

    def __init__(self, chat: ChatModel) -> None:
        self._chat = chat

    @property
    def at_once(self) -> int:
        return self._chat.settings.concurrency

    def judge(self, protocol: EvaluationProtocol) -> Judge:
        prompt = protocol.prompt_digest(self.stage)
        version = f"{self.version}{self._chat.variant}"
        return Judge(engine="llm", model=self._chat.model, prompt=prompt, version=version)

    async def close(self) -> None:
        await self._chat.close()


async def each(ask: Callable[[T], Awaitable[R]], items: Iterable[T]) -> list[R | GroundwatchError]:
    """What `ask` brings for each item, in order, all asked at once; an error in the place of one's result."""

    async def one(item: T) -> R | GroundwatchError:
        try:
            return await ask(item)
        except GroundwatchError as error:
            return error

    return await asyncio.gather(*map(one, items))


def attempt(ask: Callable[[T], R], item: T) -> R | GroundwatchError:
    """What `ask` makes of the item, or the error that it raises over it."""
    try:
        return ask(item)
    except (Unscorable, TransientError, InputError) as error:
        return error


async def in_turn(ask: Callable[[T], R], items: Iterable[T]) -> list[R | GroundwatchError]:
    """`attempt` for each item, in order, in a thread: other tasks go on meanwhile."""
    return await asyncio.to_thread(lambda: [attempt(ask, item) for item in items])


def upright_images(load: LoadImage) -> LoadImage:
    """For models behind endpoints of which some look at EXIF data and some do not."""

    async def turned(name: str) -> Image:
        data, media_type = await load(name)
        return await asyncio.to_thread(upright_file, data), media_type

    return turned


async def load_images(load: LoadImage, names: Iterable[str]) -> list[Image]:
    """Raises `Unscorable` for one that is not there."""
    images = []
    for name in names:
        try:
            images.append(await load(name))
        except (LookupError, FileNotFoundError) as error:
            raise Unscorable("missing_image", name) from error
    return images


def llm_of(stage: str, engine: str, llm: ChatSettings | None) -> ChatSettings:
    """Raises `SettingsError` where settings do not say how to reach it: copies of them are not checked."""
    if llm is None:
        raise SettingsError(f"setting '{stage}.llm': engine {engine} needs base_url and model here")
    return llm


def unknown_engine(stage: str, engine: str, known: str) -> SettingsError:
    return SettingsError(f"setting '{stage}.engine': no engine '{engine}'; known are {known}")


def own_engine(stage: str, reference: str) -> Any:
    """An engine of the user's own, a class by "module:attribute". Raises `SettingsError`, whatever its code
    raises."""
    try:
        made = load(reference)()
    except UsageError as error:
        raise SettingsError(f"setting '{stage}.engine': {error}") from error
    except Exception as error:
        raise SettingsError(
            f"setting '{stage}.engine': '{reference}' cannot be made: {words(error)}"
        ) from error
    if missing := [name for name in ("batch", "judge", "close") if not hasattr(made, name)]:
        raise SettingsError(f"setting '{stage}.engine': '{reference}' is no engine: it has no {missing[0]}")
    return made


def embedder_of(stage: str, folder: str) -> SentenceEmbedder:
    """The stage's embedding model. Raises `SettingsError` for a folder without one."""
    try:
        return embedder(folder)
    except MissingExtraError:
        raise
    except UsageError as error:
        raise SettingsError(f"setting '{stage}.embedding_model': {error}") from error
