from groundwatch.protocols.method import Method
from groundwatch.protocols.trihe.protocol import TriHe
from groundwatch.protocols.trihe.tally import TALLY

METHOD = Method(name=TriHe.name, protocols=(TriHe(),), tally=TALLY, package=__name__)
