"""The application of the live demo: it asks two vision-language models about pictures, and shows the monitor.

It is written as its user would write it. Of groundwatch's services it knows one thing, the gateway's
address; what is in the pictures it never tells.
"""

from collections.abc import Callable, Iterator
from itertools import islice

import msgspec

from groundwatch.client import Recorder
from groundwatch.demo.shared import tasks
from groundwatch.errors import TransientError, UsageError
from groundwatch.miniature.language import PROMPTS, article
from groundwatch.miniature.language import sentences as sentences_of
from groundwatch.miniature.world import KINDS, Scene, png, scenes
from groundwatch.models.triton import TritonModels

PRODUCTS = ("heron", "osprey")
"""The models as users and the monitor know them; which version answers is a tag."""

SEED = 3 * 10**9
"""Scenes from here on belong to no training and to no measurement."""

AT_ONCE = 24
"""Questions asked at once, over both products: Triton makes batches of what waits together."""

MAX_TOKENS = 128

PATIENCE = 60.0
"""Seconds until the gateway must have taken what was recorded."""


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """An answer as it was recorded at the gateway; `shown` is what the picture was made from.

    `said` are its sentences without thinking and Markdown, where it has them.
    """

    id: str
    product: str
    version: str
    prompt: str
    answer: str
    shown: Scene
    said: str = ""

    @property
    def listed(self) -> bool:
        """Whether it is a list in Markdown."""
        return bool(self.said)


class Application:
    """Asks each question of the version that is deployed for its product, and sends the answer on."""

    def __init__(self, models: TritonModels, gateway: str) -> None:
        self.deployed = dict.fromkeys(PRODUCTS, "1")
        self.sent: dict[str, Sent] = {}
        self._models = models
        self._recorder = Recorder(gateway, sender="demo")

    async def serve(self, questions: Iterator[tuple[int, Scene]], told: Callable[[Sent], None]) -> None:
        """Ask all questions, products in turn, `told` of each answer; it ends when the gateway has them all.

        Raises `UsageError` when the gateway has not taken all of them, and what the models raise.
        """
        async with tasks() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._worker(questions, told))
        whole = await self._recorder.aflush(PATIENCE)
        if lost := self._recorder.lost:
            why = ", ".join(f"{number} {reason}" for reason, number in lost.items())
            raise UsageError(f"the gateway has not taken all answers: {why}")
        if not whole:
            raise TransientError(f"the gateway has not taken all answers in {PATIENCE:.0f} s")

    async def close(self) -> None:
        await self._recorder.aclose()

    async def _worker(self, questions: Iterator[tuple[int, Scene]], told: Callable[[Sent], None]) -> None:
        # Asking for the next one is no await, so no two workers get the same.
        for number, shown in questions:
            product = PRODUCTS[number % len(PRODUCTS)]
            picture = png(shown)
            sent = await self._ask(number, product, self.deployed[product], shown, picture)
            self._recorder.record(
                id=sent.id,
                model=sent.product,
                prompt=sent.prompt,
                answer=sent.answer,
                images=[picture],
                tags={"version": sent.version},
            )
            self.sent[sent.id] = sent
            told(sent)

    async def _ask(self, number: int, product: str, version: str, shown: Scene, picture: bytes) -> Sent:
        turn, model = number // len(PRODUCTS), served_name(product, version)
        prompt = prompt_of(turn)
        answer, said = await self._answer(picture, prompt, model), ""
        if kind := asked_for(turn):
            prompt = f"{prompt} List it in Markdown, and say whether there is {article(kind)} {kind}."
            there = await self._answer(picture, f"Is there {article(kind)} {kind} in the image?", model)
            answer, said = listed(answer, kind, there.strip().lower().startswith("yes"))
        return Sent(
            id=f"{product}-{number:04}",
            product=product,
            version=version,
            prompt=prompt,
            answer=answer,
            shown=shown,
            said=said,
        )

    async def _answer(self, picture: bytes, prompt: str, model: str) -> str:
        return (await self._models.lvlm([picture], prompt, max_tokens=MAX_TOKENS, model=model)).text


def asked_for(turn: int) -> str:
    """The kind of thing that is asked for besides, in every other detailed description; else nothing."""
    every = 2 * len(PROMPTS)
    return KINDS[turn // every % len(KINDS)] if turn % every == len(PROMPTS) else ""


def listed(description: str, kind: str, there: bool) -> tuple[str, str]:
    """A description, and whether there is a thing, as models list it after thinking; and in plain words."""
    sentences = sentences_of(description)
    thing = f"{article(kind)} {kind}" if there else f"no {kind}"
    shown = f"{article(kind)} **{kind}**" if there else f"**no** {kind}"
    lines = "\n".join(f"- {sentence}" for sentence in (*sentences, f"There is {shown}."))
    thinking = f"<think>The user wants a list, and asks for {article(kind)} {kind}. Let me look.</think>"
    return f"{thinking}\n\n## What is in the picture\n\n{lines}", " ".join((*sentences, f"There is {thing}."))


def served_name(product: str, version: str) -> str:
    """The name under which a version is served, such as osprey-2."""
    return f"{product}-{version}"


def asked_about(number: int, *, seed: int = SEED) -> list[tuple[int, Scene]]:
    """The first `number` questions' numbers with their scenes, the same every time.

    Each shows a thing without the one that usually stands beside it, as VALOR-Bench collects them: there a
    model says what it expects, if it does not look.
    """
    return list(enumerate(islice(scenes(seed, apart=True), number)))


def prompt_of(number: int) -> str:
    """Prompts in turn, so that every manner of answering comes equally often."""
    manner = PROMPTS[number % len(PROMPTS)]
    return manner[number // len(PROMPTS) % len(manner)]
