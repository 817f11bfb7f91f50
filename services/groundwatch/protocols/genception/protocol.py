"""GenCeption as the services see it: a chain that goes round between captioning and generation.

Source: GenCeption, Evaluate Multimodal LLMs with Unlabeled Unimodal Data, algorithm 1.
"""

import math
from collections.abc import Mapping, Sequence

from groundwatch.errors import InputError, Unscorable
from groundwatch.events import ChainAdvanced, ResponseRecorded
from groundwatch.protocols import prompts
from groundwatch.protocols.base import ChainProtocol, Score, Stage, read_figures
from groundwatch.protocols.genception.files import tally_chains
from groundwatch.protocols.genception.scoring import CATEGORY_TAG, Chain, gc_at, gc_each
from groundwatch.protocols.method import Result, mean_of


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

    def figures(self, chains: Sequence[ChainAdvanced], length: int) -> Result:
        found = [
            Chain(
                image=chain.response.id,
                category=chain.response.tags.get(CATEGORY_TAG, ""),
                similarities=tuple(step.similarity for step in chain.steps if step.similarity is not None),
            )
            for chain in chains
        ]
        interval = mean_of((gc_at(chain.similarities, length) for chain in found), bounds=self.bounds)
        return {**tally_chains(found, length), "gc_interval": interval}
