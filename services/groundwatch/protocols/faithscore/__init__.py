from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.protocols.faithscore.tally import TALLY
from groundwatch.protocols.method import Method

METHOD = Method(name=FaithScore.name, protocols=(FaithScore(),), tally=TALLY, package=__name__)
