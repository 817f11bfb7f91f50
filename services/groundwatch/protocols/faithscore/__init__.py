from groundwatch.protocols.faithscore.protocol import FaithScore, FaithScoreSettings
from groundwatch.protocols.method import Method

METHOD = Method(name=FaithScore.name, protocols=(FaithScore(),), settings=FaithScoreSettings)
