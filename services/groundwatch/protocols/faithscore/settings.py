"""What can be set of FaithScore."""

from typing import Annotated

from pydantic import AfterValidator, Field

from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.protocols.faithscore.scoring import CATEGORIES
from groundwatch.protocols.method import MethodSettings
from groundwatch.section import NotNegative


def _category(name: str) -> str:
    if name not in CATEGORIES:
        raise ValueError(f"no such category; there are {', '.join(CATEGORIES)}")
    return name


class FaithScoreSettings(MethodSettings):
    """Weights of equation 1 for each category; 1 where absent, as in the paper."""

    weights: dict[Annotated[str, AfterValidator(_category)], NotNegative] = Field(default_factory=dict)

    def protocols(self) -> tuple[FaithScore]:
        return (FaithScore(self.weights),)
