"""The prompts that this system's own protocols and probes ask with, so that the models know them too."""

from __future__ import annotations

from functools import cache
from random import Random

from groundwatch.events import ResponseRecorded
from groundwatch.miniature.language import PROMPTS
from groundwatch.protocols import prompts
from groundwatch.protocols.genception.protocol import GenCeption

VALOR = "groundwatch.protocols.valor"
OTHERS = (
    "Describe this image in as much detail as you can.",
    "Please provide a detailed description of the picture.",
    "Generate a detailed caption.",
    "What does the image show? Answer in full sentences.",
    "Give me a thorough account of this picture.",
    "Can you describe the scene for me?",
    "Look at the image and tell me everything about it.",
)
PLAIN = "Describe this image in detail. Say only what you can see."
OWN = 0.35
"""How often a detailed description is asked for in words that are not the world's own."""


@cache
def detailed() -> tuple[str, ...]:
    """Ways to ask for a detailed description: GenCeption's, VALOR's with and without their last sentence, and
    other people's."""
    names = ("ask_object_existence", "ask_attribute_object", "ask_relation_positional")
    probes = [PLAIN, *(prompts.load(VALOR, name).user for name in names)]
    chain = GenCeption().description_prompt(ResponseRecorded(id="", model="", answer=""))
    return (*OTHERS, chain, *probes, *(f"{one.rpartition('. ')[0]}." for one in probes))


def prompt_for(manner: int, random: Random) -> str:
    """A prompt that is answered in this manner."""
    if manner == 0 and random.random() < OWN:
        return random.choice(detailed())
    return random.choice(PROMPTS[manner])


def drawing_prompt(description: str, random: Random) -> str:
    """A description as the generator is given it: as it is, or as a chain wraps it."""
    return GenCeption().generation_prompt(description) if random.random() < 0.3 else description
