"""GenCeption: a chain that goes round between captioning and generation.

Source: GenCeption, Evaluate Multimodal LLMs with Unlabeled Unimodal Data, algorithm 1 and section 2.2. A
chain is the sequence s(1), …, s(T) of one seed image: how similar the image made in each iteration is to the
seed.
"""

import math
from collections.abc import Mapping, Sequence

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import ChainAdvanced, ResponseRecorded
from groundwatch.protocols import prompts
from groundwatch.protocols.base import ChainProtocol, Score, Stage, read_figures


def gc_each(similarities: Sequence[float]) -> tuple[float, ...]:
    """GC@1, GC@2, … up to the chain's length, by running sums."""
    found = []
    weighted = 0.0
    for at, value in enumerate(similarities, start=1):
        weighted += at * value
        found.append(weighted / (at * (at + 1) / 2))
    return tuple(found)


class GenCeption(ChainProtocol):
    """Describe, generate, compare, T times over; then equation 3 for every t up to T.

    The response's one image is the seed, its `prompt` (or ours) is asked of every image, its tag `t` says
    how many rounds and its tag `category` names the kind of image.
    """

    name = "genception"
    package = __package__
    prompt_files: Mapping[Stage, tuple[str, ...]] = {
        Stage.CAPTIONING: ("describe",),
        Stage.GENERATION: ("generate",),
    }
    bounds = (-1.0, 1.0)
    headline = read_figures(__package__)

    def start(self, response: ResponseRecorded) -> ChainAdvanced:
        """Raises `Unscorable` without an image, `InputError` for several or a length that is none."""
        if not response.images:
            raise Unscorable("nothing_to_look_at", "a chain starts from an image")
        if len(response.images) > 1:
            raise InputError(f"a chain starts from one image, not from {len(response.images)}")
        told = response.tags.get(self.length_tag, str(self.default_length))
        if not (told.isascii() and told.isdigit() and len(told) < 5 and 1 <= int(told) <= self.max_length):
            wanted = f"a number of rounds from 1 to {self.max_length}"
            raise InputError(f"tag '{self.length_tag}' is {told[:20]!r}, not {wanted}")
        return ChainAdvanced(response=response, protocol=self.name, length=int(told))

    def description_prompt(self, response: ResponseRecorded) -> str:
        """P_Desc: the response's own prompt, or ours where it has none."""
        return response.prompt or prompts.load(self.package, "describe").user

    def generation_prompt(self, description: str) -> str:
        """P_Gen. Without the fence that judges are given: an image generator would draw it."""
        return prompts.load(self.package, "generate").user.replace("{{description}}", description)

    def score_chain(self, chain: ChainAdvanced) -> Score:
        """GC@T; beside it every s(t) as `s1`, `s2`, … and every GC@t as `gc1`, `gc2`, …

        Raises `InputError` when a round is missing, `Unscorable` for a similarity that is no number.
        """
        found = [step.similarity for step in chain.steps if step.similarity is not None]
        if len(found) != chain.length or len(chain.steps) != chain.length:
            raise InputError(f"the chain has {len(found)} of {chain.length} rounds")
        if not all(map(math.isfinite, found)):
            raise Unscorable("no_similarity", "a similarity is not a number")
        values = {f"s{t}": similarity for t, similarity in enumerate(found, start=1)}
        values |= {f"gc{t}": gc for t, gc in enumerate(gc_each(found), start=1)}
        return Score(score=values[f"gc{chain.length}"], values=values)
