"""How a model under test is asked: straight away, or with its eyes closed after it has made notes.

`triplets-first` is the training-free mitigation of Tri-HE, section 5.4: the model describes the image as
triplets with the question in mind, then answers from that description without seeing the image. Its answers
carry the strategy's name in the tag `strategy`, so that reports can set them beside those of `direct`.
"""

from typing import Protocol

from groundwatch.events import Strategy as Name
from groundwatch.events import digest
from groundwatch.protocols import prompts

PACKAGE = "groundwatch.captioning"
TAG = "strategy"


class Strategy(Protocol):
    """Every strategy asks with the images first; some ask once more, without them."""

    def first(self, prompt: str) -> str:
        """What is asked with the images."""
        ...

    def second(self, prompt: str, said: str) -> str | None:
        """What is asked then, without them, after the model has `said` something; None: that was all."""
        ...

    def digest(self, prompt: str) -> str:
        """Digest of all that is asked but the images: sixteen hex digits."""
        ...


class Direct:
    """The prompt as it is."""

    def first(self, prompt: str) -> str:
        return prompt

    def second(self, prompt: str, said: str) -> str | None:
        return None

    def digest(self, prompt: str) -> str:
        return digest(prompt)[:16]


class TripletsFirst:
    """Notes as triplets, then the answer from the notes alone."""

    def first(self, prompt: str) -> str:
        asked = prompts.load(PACKAGE, "describe_triplets")
        return f"{asked.system}\n\n{asked.fill(question=prompt)}"

    def second(self, prompt: str, said: str) -> str | None:
        asked = prompts.load(PACKAGE, "answer_unseen")
        return f"{asked.system}\n\n{asked.fill(question=prompt, notes=said)}"

    def digest(self, prompt: str) -> str:
        files = (prompts.load(PACKAGE, name) for name in ("describe_triplets", "answer_unseen"))
        return digest(prompts.combined_digest(files), prompt)[:16]


STRATEGIES: dict[Name, Strategy] = {Name.DIRECT: Direct(), Name.TRIPLETS_FIRST: TripletsFirst()}
