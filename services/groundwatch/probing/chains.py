"""GenCeption's chains outside the running system: T rounds of describing, generating and encoding.

Each round is kept as soon as it is done, with its image by content hash, so a killed run goes on with the
round that it was in.
"""

import asyncio
import time
from dataclasses import dataclass

import msgspec

from groundwatch.errors import GroundwatchError, InputError, TransientError, Unavailable, Unscorable
from groundwatch.events import ChainAdvanced, ChainStep, Judge
from groundwatch.generation.engines.base import GenerationEngine, Vector, cosine
from groundwatch.keys import digest
from groundwatch.models.replies import Text
from groundwatch.probing.runfile import Answer, Round
from groundwatch.probing.suites import ATTEMPTS, LONGEST_PAUSE, PAUSE, Asker, why
from groundwatch.protocols.base import ChainProtocol, Stage
from groundwatch.protocols.method import Question
from groundwatch.protocols.prompts import asked_digest
from groundwatch.runtime.stores.images import check_image


class ChainRun(msgspec.Struct, frozen=True, kw_only=True):
    """A chain as far as it went; `answer` says why it went no further, if it did not."""

    chain: ChainAdvanced
    answer: Answer


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
            return ChainRun(chain=chain, answer=Answer(key=key, response=ended, judge=describer, again=again))
        return ChainRun(chain=chain, answer=Answer(key=key, response=response, judge=describer))

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
