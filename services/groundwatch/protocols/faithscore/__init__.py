from groundwatch.protocols.faithscore.protocol import FaithScore, FaithScoreSettings
from groundwatch.protocols.faithscore.suite import TALLY, figures, read_answers, read_suite
from groundwatch.protocols.method import Method

METHOD = Method(
    name=FaithScore.name,
    protocols=(FaithScore(),),
    settings=FaithScoreSettings,
    tally=TALLY,
    answers=read_answers,
    validation="groundwatch_benchmarks.agreement.faithscore:validate",
    suite=read_suite,
    figures=figures,
    world="groundwatch_benchmarks.worlds:faithscore",
    package=__name__,
)
