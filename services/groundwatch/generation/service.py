"""The generation service: descriptions in, images and their similarity to the seed image out."""

import asyncio
from collections.abc import Sequence

import msgspec

from groundwatch.errors import GroundwatchError, InputError, Unscorable
from groundwatch.events import ChainAdvanced, ChainStep, Judge, digest
from groundwatch.generation.engines import build
from groundwatch.generation.engines.base import Generated, GenerationEngine, Vector
from groundwatch.generation.similarity import cosine
from groundwatch.protocols.base import ChainProtocol, Stage
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.work import Result, Work
from groundwatch.runtime.services.chains import ChainService
from groundwatch.runtime.services.service import next_stage
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.stores.images import Image, ImageStore, check_image
from groundwatch.runtime.telemetry.metrics import Metrics

SEEDS = 1_000
"""Vectors of seed images that are remembered, for each encoder: every round of a chain compares with the
same one."""


class _Pending(msgspec.Struct, frozen=True, kw_only=True):
    """A chain whose last description becomes an image, at its place in the batch."""

    index: int
    chain: ChainAdvanced
    protocol: ChainProtocol
    prompt: str
    judge: Judge
    to: Stage


class GenerationService(ChainService):
    """Makes the next image of a chain, by the engine that settings name, and compares it with the seed.

    The image is stored before the chain that names it goes on. After its last round a chain goes to
    scoring, otherwise round again.
    """

    engine: GenerationEngine

    def __init__(
        self, settings: Settings, bus: Bus, metrics: Metrics, engine: GenerationEngine | None = None
    ) -> None:
        super().__init__(Stage.GENERATION.value, settings, bus, metrics)
        engine = engine or build(
            settings.generation, on_call=self.count_request, images=settings.images, triton=settings.triton
        )
        self._store = ImageStore(bus.js)
        self._limits = settings.gateway.intake
        self._seeds: dict[tuple[Judge, str], Vector] = {}
        self.consume(ChainAdvanced, self.handle, settings.generation, engine)

    async def handle(self, works: Sequence[Work[ChainAdvanced]]) -> Sequence[Result | GroundwatchError]:
        """Every chain with one image more, or why it ends."""
        results: list[Result | GroundwatchError] = [Result() for _ in works]
        pending: list[_Pending] = []
        for index, work in enumerate(works):
            try:
                one = await self._pending(index, work)
            except Unscorable as error:
                results[index] = self.not_carried_on(work.event, error)
            except GroundwatchError as error:
                results[index] = error
            else:
                if one is not None:
                    pending.append(one)
        groups: dict[Judge, list[_Pending]] = {}
        for one in pending:
            groups.setdefault(one.judge, []).append(one)
        for judge, group in groups.items():
            made: Sequence[Generated | GroundwatchError] = await self.counted(
                self.engine.generate, [one.prompt for one in group], judge
            )
            ends = await asyncio.gather(*map(self._end, group, made))
            for one, end in zip(group, ends, strict=True):
                results[one.index] = end
        return results

    async def _pending(self, index: int, work: Work[ChainAdvanced]) -> _Pending | None:
        """None when an earlier delivery has carried the chain on already."""
        chain = work.event
        protocol = self.chain_protocol(chain)
        if not chain.steps:
            raise InputError("the chain has no description to make an image from")
        to = next_stage(protocol, Stage.GENERATION) if len(chain.steps) >= chain.length else Stage.CAPTIONING
        if await self.already_done(work.arrived, chain, to):
            return None
        judge = self.engine.judge(digest(protocol.generation_prompt(""))[:16])
        self.check_judge(chain, judge)
        prompt = protocol.generation_prompt(chain.steps[-1].description)
        return _Pending(index=index, chain=chain, protocol=protocol, prompt=prompt, judge=judge, to=to)

    async def _end(self, one: _Pending, made: Generated | GroundwatchError) -> Result:
        chain = one.chain
        try:
            if isinstance(made, GroundwatchError):
                raise made
            image = await asyncio.to_thread(self._checked, made)
            similarity = await self._similarity(one.judge, chain.response.images[0], image.data)
            await self._store.put(image)
        except GroundwatchError as error:
            return self.not_carried_on(chain, error, one.judge)
        step = ChainStep(description=chain.steps[-1].description, image=image.sha256, similarity=similarity)
        longer = msgspec.structs.replace(
            chain, steps=(*chain.steps[:-1], step), usage=chain.usage + made.usage
        )
        return self.carried_on(longer, one.judge, one.to)

    def _checked(self, made: Generated) -> Image:
        """Generated images pass the same checks as those of the outside world."""
        try:
            return check_image(made.image, self._limits)
        except InputError as error:
            raise Unscorable("unreadable_image", f"generated: {error}") from error

    async def _similarity(self, judge: Judge, seed: str, image: bytes) -> float:
        known = self._seeds.get((judge, seed))
        if known is None:
            known, found = await self._encode(await self._load(seed), image)
            if len(self._seeds) >= SEEDS:
                self._seeds.clear()
            self._seeds[judge, seed] = known
        else:
            (found,) = await self._encode(image)
        return cosine(known, found)

    async def _load(self, seed: str) -> bytes:
        try:
            data, _ = await self._store.load(seed)
        except LookupError as error:
            raise Unscorable("missing_image", seed) from error
        return data

    async def _encode(self, *images: bytes) -> list[Vector]:
        found = await self.engine.encode(images)
        if len(found) != len(images):
            raise InputError(f"the engine gave {len(found)} vectors for {len(images)} images")
        vectors: list[Vector] = []
        for vector in found:
            if isinstance(vector, GroundwatchError):
                raise vector
            vectors.append(vector)
        return vectors
