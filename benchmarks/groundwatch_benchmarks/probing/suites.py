"""Suites, and the model that is asked their questions, each until it has an answer or a reason for none.

A benchmark's folder has the layout in which its authors published it: annotation files, with the images in
its subfolder `images` or wherever the command says. Questions whose image is not there are left out and
counted: published annotations come without their images. The model is asked by the very engines of the
captioning service, so that a probe and live questions meet it in the same way.
"""

import asyncio
import fcntl
import hashlib
import os
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import IO, Any, TypeVar
from urllib.parse import SplitResult, urlsplit
from uuid import uuid4

import msgspec
from pydantic import ValidationError

from groundwatch.addresses import shown_address
from groundwatch.captioning.engines import CaptioningEngine, Turn, build
from groundwatch.captioning.service import STRATEGIES, TAG
from groundwatch.errors import (
    UNDECODED,
    FileFormatError,
    GroundwatchError,
    InputError,
    SettingsError,
    TransientError,
    Unavailable,
    Unscorable,
    UsageError,
    told_to_user,
)
from groundwatch.events import (
    ChainAdvanced,
    ChainStep,
    Judge,
    NoAnswer,
    ResponseRecorded,
    ResponseScored,
    Strategy,
    Usage,
)
from groundwatch.generation.engines import GenerationEngine, Vector, cosine
from groundwatch.image_files import read_image_file
from groundwatch.keys import digest
from groundwatch.miniature.world import scenes
from groundwatch.models.asking import ASKED_FOR, CallKind
from groundwatch.models.replies import Image, Text
from groundwatch.models.settings import ChatSettings, TritonSettings
from groundwatch.protocols import registry
from groundwatch.protocols.base import ChainProtocol, Stage, load
from groundwatch.protocols.method import Images, Question
from groundwatch.protocols.prompts import asked_digest
from groundwatch.runtime.settings import CaptioningSettings, Settings
from groundwatch.runtime.settings.gateway import IntakeSettings
from groundwatch.runtime.stores.images import check_image
from groundwatch.section import in_words

FILE = "run.jsonl"
IMAGES = "images"


class Header(msgspec.Struct, frozen=True, kw_only=True, tag="run"):
    """What a run is. Another one of these must not go on in the same folder."""

    suite: str
    model: str
    source: str
    strategy: str = "direct"


class ProbeAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="answer"):
    """A question with its answer or the reason for none, and who was asked.

    `again`: that reason passes, so the question is asked again when the run goes on.
    """

    key: str
    response: ResponseRecorded
    judge: Judge
    usage: Usage = Usage()
    again: bool = False


class Round(msgspec.Struct, frozen=True, kw_only=True, tag="round"):
    """One round of a chain, counted from 1."""

    key: str
    number: int
    step: ChainStep
    judges: dict[str, Judge]
    usage: Usage = Usage()


class Judged(msgspec.Struct, frozen=True, kw_only=True, tag="outcome"):
    """The outcome of an answer; `key` is that of the answer with its judges' fingerprints."""

    key: str
    outcome: ResponseScored


Line = Header | ProbeAnswer | Round | Judged

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Line)


class RunFile:
    """A run that is open for going on. Closes with `close`; one process at a time."""

    def __init__(self, folder: Path, header: Header) -> None:
        """Raises `UsageError` for a folder that another run uses or is in, `FileFormatError` for damage."""
        self.folder = folder
        self.answers: dict[str, ProbeAnswer] = {}
        self.rounds: dict[str, dict[int, Round]] = {}
        self.outcomes: dict[str, ResponseScored] = {}
        path = folder / FILE
        with told_to_user(f"{folder}: cannot be written"):
            (folder / IMAGES).mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = path.open("a+b")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise UsageError(f"{folder}: another probe is at work there") from error
        try:
            self._read(path, header)
        except BaseException:
            self._file.close()
            raise

    def add(self, line: ProbeAnswer | Round | Judged) -> None:
        """Append it; it is on the disk when this returns."""
        self._take(line)
        self._write(line)

    def keep_image(self, data: bytes) -> str:
        """Store an image under its SHA-256, which this returns. Whole or not at all."""
        digest = hashlib.sha256(data).hexdigest()
        path = self.folder / IMAGES / digest
        if not path.exists():
            # Several questions share an image and keep it at the same time: each writes a file of its own.
            beside = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
            beside.write_bytes(data)
            beside.replace(path)
        return digest

    def image(self, digest: str) -> bytes:
        return (self.folder / IMAGES / digest).read_bytes()

    def close(self) -> None:
        self._file.close()

    def _read(self, path: Path, header: Header) -> None:
        self._file.seek(0)
        whole = 0
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):
                break
            try:
                read = _DECODER.decode(line)
            except UNDECODED as error:
                raise FileFormatError(path, f"is no line of a probe's run ({error})", line=number) from error
            if isinstance(read, Header):
                for name in Header.__struct_fields__:
                    was, wanted = getattr(read, name), getattr(header, name)
                    if was != wanted:
                        told = f"is a run with {name} '{was}', not '{wanted}': name another folder"
                        raise UsageError(f"{self.folder}: {told}", "folder")
            else:
                self._take(read)
            whole += len(line)
        self._file.truncate(whole)
        self._file.seek(0, os.SEEK_END)
        if not whole:
            self._write(header)

    def _take(self, line: ProbeAnswer | Round | Judged) -> None:
        match line:
            case ProbeAnswer():
                self.answers[line.key] = line
            case Round():
                self.rounds.setdefault(line.key, {})[line.number] = line
            case Judged():
                self.outcomes[line.key] = line.outcome

    def _write(self, line: Line) -> None:
        with told_to_user(f"{self.folder}: cannot be written"):
            self._file.write(_ENCODER.encode(line) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())


WORLD = "miniature"
SEED = 4 * 10**9
"""Scenes from here on are asked about and belong to no training."""

SCENES = 200


class Suite:
    """Questions, the same ones in the same order whenever it is asked; `left_out` counts by reason."""

    def __init__(self, name: str, place: Path | str, read: Callable[[], Iterable[Question | None]]) -> None:
        self.name = name
        self.left_out: dict[str, int] = {}
        self._place = place
        self._read = read

    def questions(self) -> Iterator[Question]:
        """Those whose images are there. Raises `UsageError` where there is none."""
        found = left = 0
        for question in self._read():
            if question is None:
                left += 1
            else:
                found += 1
                yield question
        if left:
            self.left_out["no_image"] = left
        if not found:
            why = f"none of the images of its {left} questions is there" if left else "holds no question"
            raise UsageError(f"{self._place}: {why}: name the folder of the images", "images")


def benchmark(name: str, folder: Path, images: Path | None = None) -> Suite:
    """The suite of this name in a folder; images lie in its `images`, or beside it where there is none."""
    read = registry.benchmark(name, "suite", "suite").suite
    assert read is not None
    if not folder.is_dir():
        raise UsageError(f"{folder}: is not a folder")
    known = Images(images or (folder / "images" if (folder / "images").is_dir() else folder), _read)
    return Suite(name, folder, lambda: read(folder, known))


def world(name: str, number: int = SCENES) -> Suite:
    """What this suite asks about `number` scenes of the miniature world. Raises `UsageError`."""
    ask = load(registry.benchmark(name, "world", "suite of the miniature world").world)
    return Suite(name, WORLD, lambda: ask(list(islice(scenes(SEED), number))))


def sample(questions: Iterable[Question], limit: int | None, seed: int) -> list[Question]:
    """`limit` questions at random, by whole units, in the suite's order; all of them without a limit.

    Units stay whole because some scores need all questions of one, such as those about one sequence; the
    last one may go beyond the limit.
    """
    found = list(questions)
    if limit is None or limit >= len(found):
        return found
    units: dict[str, list[int]] = {}
    for place, question in enumerate(found):
        units.setdefault(question.unit or question.id, []).append(place)
    names = list(units)
    Random(seed).shuffle(names)
    chosen: list[int] = []
    for name in names:
        if len(chosen) >= limit:
            break
        chosen += units[name]
    return [found[place] for place in sorted(chosen)]


def _read(path: Path) -> bytes:
    """The image; a benchmark's folder may hold links to where its images lie."""
    return read_image_file(path.resolve(), max_bytes=IntakeSettings().max_image_bytes)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Who is asked. `url` is http(s):// for OpenAI-compatible servers, triton://host:port for Triton.

    `timeout` in seconds for one request; `at_once` requests are under way together.
    """

    url: str
    model: str
    timeout: float = 60.0
    at_once: int = 8
    max_tokens: int = 1024
    api_key_env: str = "OPENAI_API_KEY"
    retries: int = 2
    patience: float = 30.0

    def check(self) -> SplitResult:
        """The address in its parts. Raises `UsageError` for one that is none."""
        try:
            parts = urlsplit(self.url)
            host = parts.hostname
        except ValueError as error:
            raise UsageError(f"target {shown_address(self.url)}: is not an address ({error})") from error
        if parts.scheme not in ("http", "https", "triton") or not host:
            raise UsageError(
                f"target {shown_address(self.url)}: must be http(s)://… of an OpenAI-compatible server or "
                "triton://host:port"
            )
        return parts

    def engine(self, settings: Settings) -> CaptioningEngine:
        """The engine that asks it. Raises `UsageError` for an address that is none."""
        parts = self.check()
        asking: dict[str, Any] = {
            "timeout": self.timeout,
            "concurrency": self.at_once,
            "retries": self.retries,
            "patience": self.patience,
        }
        try:
            if parts.scheme == "triton":
                captioning = CaptioningSettings(
                    engine="triton", served={self.model: self.model}, max_tokens=self.max_tokens
                )
                triton = {**dict(settings.triton), **asking, "url": f"{parts.netloc}{parts.path}"}
                return build(captioning, triton=TritonSettings(**triton))
            chat = ChatSettings(
                base_url=self.url.rstrip("/"),
                model=self.model,
                api_key_env=self.api_key_env,
                max_tokens=self.max_tokens,
                **asking,
            )
            return build(CaptioningSettings(models={self.model: chat}))
        except ValidationError as error:
            raise SettingsError(f"target {shown_address(self.url)}: {in_words(error)}") from error


T = TypeVar("T")
R = TypeVar("R")

ATTEMPTS = 3
"""How often a question is asked anew after a fault that outlasted the engine's own patience."""

PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds before it is asked anew, doubling."""

GIVEN_UP = 20
"""After so many faults in a row without a single answer nobody waits for the rest."""

OF_THE_TARGET = (CallKind.UNREACHABLE, CallKind.MISCONFIGURED)
"""Faults that the first question's asker must mend: no other question would fare better."""


@dataclass
class Asker:
    """Asks one model by one strategy, and keeps every answer in the run's file."""

    engine: CaptioningEngine
    model: str
    run: RunFile
    limits: IntakeSettings
    strategy: Strategy = Strategy.DIRECT

    def _key(self, question: Question, judge: Judge, images: Sequence[str]) -> str:
        """Names the question, who answers it and how it is put; `images` are digests."""
        return digest(question.id, self.model, judge.fingerprint, *images)[:32]

    def load(self, question: Question) -> list[Image]:
        """The question's images. Raises `Unscorable` for one that cannot be read."""
        found = []
        for picture in question.images:
            try:
                checked = check_image(picture.load(), self.limits)
            except (OSError, InputError) as error:
                raise Unscorable("unreadable_image", f"{picture.name}: {error}") from error
            found.append((checked.data, checked.media_type))
        return found

    async def answer(self, question: Question) -> ProbeAnswer:
        """The answer that the run has, or a new one, kept there."""
        response = question.response(self.model)
        response = msgspec.structs.replace(response, tags={**response.tags, TAG: self.strategy.value})
        try:
            images = await asyncio.to_thread(self.load, question)
        except Unscorable as error:
            return self._kept(question, [], response, self.judge(question.prompt), error)
        kept = [await asyncio.to_thread(self.run.keep_image, data) for data, _ in images]
        response = msgspec.structs.replace(response, images=tuple(kept))
        known = self.run.answers.get(self._key(question, self.judge(question.prompt), kept))
        if known is not None and not known.again:
            return known
        judge, said = await self.say(question.prompt, images)
        if isinstance(said, Text):
            response = msgspec.structs.replace(response, answer=said.text, recorded_at=time.time())
        return self._kept(question, kept, response, judge, said)

    async def say(self, prompt: str, images: Sequence[Image]) -> tuple[Judge, Text | GroundwatchError]:
        """What the model says, after as many turns as the strategy has, and who it was."""
        pause = PAUSE
        # All its attempts are one question: alone it never shows that the model is away.
        ASKED_FOR.set(uuid4().hex)
        for attempt in range(1, ATTEMPTS + 1):
            judge = self.judge(prompt)
            said = await self._turns(prompt, images)
            if not isinstance(said, TransientError) or attempt == ATTEMPTS or said.kind in OF_THE_TARGET:
                break
            wait = said.retry_after if isinstance(said, Unavailable) else None
            await asyncio.sleep(min(wait if wait is not None else pause, LONGEST_PAUSE))
            pause *= 2
        return judge, said

    def judge(self, prompt: str) -> Judge:
        return self.engine.judge(self.model, STRATEGIES[self.strategy].digest(prompt))

    async def _turns(self, prompt: str, images: Sequence[Image]) -> Text | GroundwatchError:
        strategy = STRATEGIES[self.strategy]
        turn = Turn(model=self.model, text=strategy.first(prompt), images=tuple(images))
        first = await self._turn(turn)
        if not isinstance(first, Text) or (turn_after := strategy.second(turn, prompt, first.text)) is None:
            return first
        second = await self._turn(turn_after)
        if isinstance(second, Text):
            return msgspec.structs.replace(second, usage=first.usage + second.usage)
        return second

    async def _turn(self, turn: Turn) -> Text | GroundwatchError:
        (said,) = await self.engine.say([turn])
        longest = self.limits.max_answer
        if isinstance(said, Text) and len(said.text) > longest:
            return Unscorable("answer_too_long", f"{len(said.text)} characters; at most {longest}")
        return said

    def _kept(
        self,
        question: Question,
        images: Sequence[str],
        response: ResponseRecorded,
        judge: Judge,
        said: Text | GroundwatchError,
    ) -> ProbeAnswer:
        if not isinstance(said, Text):
            response = msgspec.structs.replace(response, unanswered=why(said))
        answer = ProbeAnswer(
            key=self._key(question, judge, images),
            response=response,
            judge=judge,
            usage=said.usage if isinstance(said, Text) else Usage(),
            again=isinstance(said, TransientError),
        )
        self.run.add(answer)
        return answer


def why(error: GroundwatchError) -> NoAnswer:
    if isinstance(error, Unscorable):
        return NoAnswer(reason=error.reason, detail=error.detail[:500])
    if isinstance(error, TransientError):
        return NoAnswer(reason=error.kind or "gave_up", detail=str(error)[:500])
    raise error


async def at_once(
    items: Sequence[T], work: Callable[[T], Awaitable[R]], number: int
) -> AsyncGenerator[tuple[int, R], None]:
    """Each item's place with what `work` makes of it, as they come; at most `number` under way.

    Whoever stops listening stops the work: what is not taken yet holds its place. The first error ends all.
    """
    room = asyncio.Semaphore(number)

    async def one(place: int, item: T) -> tuple[int, R]:
        await room.acquire()
        return place, await work(item)

    running = [asyncio.create_task(one(place, item)) for place, item in enumerate(items)]
    try:
        for done in asyncio.as_completed(running):
            yield await done
            room.release()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class ChainRun(msgspec.Struct, frozen=True, kw_only=True):
    """A chain as far as it went; `answer` says why it went no further, if it did not."""

    chain: ChainAdvanced
    answer: ProbeAnswer


@dataclass
class Chains:
    """Walks chains of `length` rounds, T, with a model under test and a generation engine."""

    asker: Asker
    generation: GenerationEngine
    protocol: ChainProtocol
    length: int

    async def walk(self, question: Question) -> ChainRun:
        """Every round that is not done yet, from one seed image."""
        response = question.response(self.asker.model)
        tags = {**response.tags, self.protocol.length_tag: str(self.length)}
        response = msgspec.structs.replace(response, tags=tags, recorded_at=time.time())
        prompt = self.protocol.description_prompt(response)
        chain = ChainAdvanced(response=response, protocol=self.protocol.name, length=self.length)
        describer = self.asker.judge(prompt)
        painter = self.generation.judge(asked_digest(self.protocol.generation_prompt("")))
        judges = {Stage.CAPTIONING.value: describer, Stage.GENERATION.value: painter}
        key = question.id
        try:
            ((data, _),) = await asyncio.to_thread(self.asker.load, question)
            seed = await asyncio.to_thread(self.asker.run.keep_image, data)
            response = msgspec.structs.replace(response, images=(seed,))
            key = digest(question.id, seed, describer.fingerprint, painter.fingerprint)[:32]
            chain = msgspec.structs.replace(chain, response=response, judges=judges)
            known = self.asker.run.rounds.get(key, {})
            while (number := len(chain.steps) + 1) <= self.length:
                done = known.get(number) or await self._round(key, chain, prompt, data)
                chain = msgspec.structs.replace(
                    chain, steps=(*chain.steps, done.step), usage=chain.usage + done.usage
                )
        except (Unscorable, TransientError) as error:
            again = isinstance(error, TransientError)
            ended = msgspec.structs.replace(response, unanswered=why(error))
            return ChainRun(
                chain=chain, answer=ProbeAnswer(key=key, response=ended, judge=describer, again=again)
            )
        return ChainRun(chain=chain, answer=ProbeAnswer(key=key, response=response, judge=describer))

    async def _round(self, key: str, chain: ChainAdvanced, prompt: str, seed: bytes) -> Round:
        pause = PAUSE
        attempt = 1
        while True:
            try:
                found = await self._try(key, chain, prompt, seed)
            except TransientError as error:
                if attempt == ATTEMPTS:
                    raise
                wait = error.retry_after if isinstance(error, Unavailable) else None
                await asyncio.sleep(min(wait if wait is not None else pause, LONGEST_PAUSE))
                attempt, pause = attempt + 1, 2 * pause
            else:
                self.asker.run.add(found)
                return found

    async def _try(self, key: str, chain: ChainAdvanced, prompt: str, seed: bytes) -> Round:
        last = chain.steps[-1].image if chain.steps else chain.response.images[0]
        shown = check_image(await asyncio.to_thread(self.asker.run.image, last), self.asker.limits)
        judge, said = await self.asker.say(prompt, [(shown.data, shown.media_type)])
        if not isinstance(said, Text):
            raise said
        (made,) = await self.generation.generate([self.protocol.generation_prompt(said.text)])
        if isinstance(made, GroundwatchError):
            raise made
        try:
            image = await asyncio.to_thread(check_image, made.image, self.asker.limits)
        except InputError as error:
            raise Unscorable("unreadable_image", f"generated: {error}") from error
        similarity = cosine(*await self._encoded(seed, image.data))
        painter = self.generation.judge(asked_digest(self.protocol.generation_prompt("")))
        now: dict[str, Judge] = {Stage.CAPTIONING.value: judge, Stage.GENERATION.value: painter}
        if now != chain.judges:
            # One number is never of two judges: run again, and the chain begins anew with those of now.
            raise Unscorable("judge_changed", "another checkpoint answered in the middle of the chain")
        await asyncio.to_thread(self.asker.run.keep_image, image.data)
        step = ChainStep(description=said.text, image=image.sha256, similarity=similarity)
        return Round(
            key=key, number=len(chain.steps) + 1, step=step, judges=now, usage=said.usage + made.usage
        )

    async def _encoded(self, seed: bytes, image: bytes) -> tuple[Vector, Vector]:
        vectors: list[Vector] = []
        for vector in await self.generation.encode([seed, image]):
            if isinstance(vector, GroundwatchError):
                raise vector
            vectors.append(vector)
        first, second = vectors
        return first, second
