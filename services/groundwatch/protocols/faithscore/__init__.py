from groundwatch.protocols.faithscore.annotation import TALLY, read_answers
from groundwatch.protocols.faithscore.protocol import FaithScore, FaithScoreSettings
from groundwatch.protocols.method import Method

METHOD = Method(
    name=FaithScore.name,
    protocols=(FaithScore(),),
    settings=FaithScoreSettings,
    tally=TALLY,
    answers=read_answers,
    validation=f"{__name__}.validation:validate",
    package=__name__,
)
