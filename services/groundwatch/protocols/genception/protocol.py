"""GenCeption as the services see it: a chain that goes round between captioning and generation.

Source: GenCeption, Evaluate Multimodal LLMs with Unlabeled Unimodal Data.
"""

from collections.abc import Mapping, Sequence

from groundwatch.events import (
    ChainAdvanced,
    ResponseRecorded,
)
from groundwatch.protocols.base import ChainProtocol, Score, Stage
from groundwatch.protocols.genception import chain as chains
from groundwatch.protocols.genception.chain import CATEGORY_TAG
from groundwatch.protocols.genception.scoring import Chain, gc_at, gc_each
from groundwatch.protocols.genception.tally import tally_chains
from groundwatch.protocols.tally import Result
from groundwatch.statistics.intervals import Moments, mean_interval


class GenCeption(ChainProtocol):
    """Describe, generate, compare, T times over; then equation 3 for every t up to T.

    The response's one image is the seed, its `prompt` (or ours) is asked of every image, its tag `t` says
    how many rounds and its tag `category` names the kind of image.
    """

    name = "genception"
    package = chains.PACKAGE
    prompt_files: Mapping[Stage, tuple[str, ...]] = {
        Stage.CAPTIONING: ("describe",),
        Stage.GENERATION: ("generate",),
    }

    def start(self, response: ResponseRecorded) -> ChainAdvanced:
        return chains.start(response, self.name)

    def description_prompt(self, response: ResponseRecorded) -> str:
        return chains.description_prompt(response)

    def generation_prompt(self, description: str) -> str:
        return chains.generation_prompt(description)

    def score_chain(self, chain: ChainAdvanced) -> Score:
        """GC@T; beside it every s(t) as `s1`, `s2`, … and every GC@t as `gc1`, `gc2`, …"""
        found = chains.similarities(chain)
        values = {f"s{t}": similarity for t, similarity in enumerate(found, start=1)}
        values |= {f"gc{t}": gc for t, gc in enumerate(gc_each(found), start=1)}
        return Score(score=values[f"gc{chain.length}"], values=values)

    def figures(self, chains: Sequence[ChainAdvanced], length: int) -> Result:
        """GC@T with its interval over seed images."""
        found = [
            Chain(
                image=chain.response.id,
                category=chain.response.tags.get(CATEGORY_TAG, ""),
                similarities=tuple(step.similarity for step in chain.steps if step.similarity is not None),
            )
            for chain in chains
        ]
        moments = Moments()
        for chain in found:
            if (gc := gc_at(chain.similarities, length)) is not None:
                moments.add(gc)
        return {**tally_chains(found, length), "gc_interval": mean_interval(moments, bounds=(-1.0, 1.0))}
