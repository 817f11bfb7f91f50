from groundwatch.protocols.genception.protocol import GenCeption
from groundwatch.protocols.genception.tally import TALLY
from groundwatch.protocols.method import Method

METHOD = Method(name=GenCeption.name, protocols=(GenCeption(),), tally=TALLY, package=__name__)
