"""A chain of descriptions and generated images: how it begins, what is asked in it, what it yields.

Source: GenCeption, Evaluate Multimodal LLMs with Unlabeled Unimodal Data, algorithm 1.
"""

import math

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import ChainAdvanced, ResponseRecorded
from groundwatch.protocols import prompts
from groundwatch.protocols.base import ChainProtocol

PACKAGE = "groundwatch.protocols.genception"
CATEGORY_TAG = "category"


def start(response: ResponseRecorded, protocol: str) -> ChainAdvanced:
    """The chain that a response asks for: its one image is the seed, its tag `t` says how many rounds.

    Raises `Unscorable` without an image, `InputError` for several images or a length that is none.
    """
    if not response.images:
        raise Unscorable("nothing_to_look_at", "a chain starts from an image")
    if len(response.images) > 1:
        raise InputError(f"a chain starts from one image, not from {len(response.images)}")
    return ChainAdvanced(response=response, protocol=protocol, length=length_of(response))


def length_of(response: ResponseRecorded) -> int:
    """T, from the response's tag. Raises `InputError` when the tag is no such number."""
    tag, longest = ChainProtocol.length_tag, ChainProtocol.max_length
    told = response.tags.get(tag, str(ChainProtocol.default_length))
    if not (told.isascii() and told.isdigit() and len(told) < 5 and 1 <= int(told) <= longest):
        raise InputError(f"tag '{tag}' is {told[:20]!r}, not a number of rounds from 1 to {longest}")
    return int(told)


def description_prompt(response: ResponseRecorded) -> str:
    """P_Desc: the response's own prompt, or ours where it has none."""
    if response.prompt:
        return response.prompt
    prompt = prompts.load(PACKAGE, "describe")
    return f"{prompt.system}\n\n{prompt.user}"


def generation_prompt(description: str) -> str:
    """P_Gen of a description.

    Without the fence that judges are given: an image generator would draw it, and obeys no instruction.
    """
    prompt = prompts.load(PACKAGE, "generate")
    return f"{prompt.system} {prompt.user}".replace("{{description}}", description)


def similarities(chain: ChainAdvanced) -> tuple[float, ...]:
    """s(1) to s(T). Raises `InputError` when a round is missing, `Unscorable` for what is no number."""
    found = [step.similarity for step in chain.steps if step.similarity is not None]
    if len(found) != chain.length or len(chain.steps) != chain.length:
        raise InputError(f"the chain has {len(found)} of {chain.length} rounds")
    if not all(map(math.isfinite, found)):
        raise Unscorable("no_similarity", "a similarity is not a number")
    return tuple(found)
