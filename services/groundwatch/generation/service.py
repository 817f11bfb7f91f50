"""The generation service: descriptions in, images and their similarity to the seed image out."""

import asyncio
from collections.abc import Sequence

import msgspec

from groundwatch.errors import GroundwatchError, InputError, Unscorable
from groundwatch.events import ChainAdvanced, ChainStep, Judge
from groundwatch.generation.engines import GenerationEngine, Vector, build, cosine
from groundwatch.models.engines import load_images
from groundwatch.models.replies import Generated
from groundwatch.protocols.base import Stage
from groundwatch.protocols.prompts import asked_digest
from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.work import Result, Work
from groundwatch.runtime.services.service import next_stage
from groundwatch.runtime.services.stages import ChainService
from groundwatch.runtime.settings import Settings
from groundwatch.runtime.stores.images import Image, ImageStore, check_image
from groundwatch.runtime.telemetry.metrics import Metrics

SEEDS = 1_000
"""Vectors of seed images that are remembered, for each encoder: every round of a chain compares with the
same one."""


class _Pending(msgspec.Struct, frozen=True, kw_only=True):
    """A chain whose last description becomes an image."""

    chain: ChainAdvanced
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
        self._store = ImageStore(bus.js, bus.cold_images)
        self._limits = settings.gateway.intake
        self._seeds: dict[tuple[Judge, str], Vector] = {}
        self.consume(ChainAdvanced, self.handle, settings.generation, engine)

    async def handle(self, works: Sequence[Work[ChainAdvanced]]) -> Sequence[Result | GroundwatchError]:
        found = [await self._pending(work) for work in works]
        pending = [one for one in found if isinstance(one, _Pending)]
        made = await self.ask(self.engine.generate, [(one.judge, one.prompt) for one in pending])
        ends = iter(await asyncio.gather(*map(self._end, pending, made)))
        return [next(ends) if isinstance(one, _Pending) else one for one in found]

    async def _pending(self, work: Work[ChainAdvanced]) -> _Pending | Result | GroundwatchError:
        try:
            return await self._prepared(work)
        except Unscorable as error:
            return self.not_carried_on(work.event, error)
        except GroundwatchError as error:
            return error

    async def _prepared(self, work: Work[ChainAdvanced]) -> _Pending | Result:
        chain = work.event
        protocol = self.chain_protocol(chain)
        if not chain.steps:
            raise InputError("the chain has no description to make an image from")
        to = next_stage(protocol, Stage.GENERATION) if len(chain.steps) >= chain.length else Stage.CAPTIONING
        if await self.already_done(work.arrived, chain, to):
            return Result()
        judge = self.engine.judge(asked_digest(protocol.generation_prompt("")))
        self.check_judge(chain, judge)
        prompt = protocol.generation_prompt(chain.steps[-1].description)
        return _Pending(chain=chain, prompt=prompt, judge=judge, to=to)

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
            ((data, _),) = await load_images(self._store.load, [seed])
            known, found = await self._encode(data, image)
            if len(self._seeds) >= SEEDS:
                self._seeds.clear()
            self._seeds[judge, seed] = known
        else:
            (found,) = await self._encode(image)
        return cosine(known, found)

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
