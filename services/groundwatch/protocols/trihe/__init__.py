from groundwatch.protocols.method import Method
from groundwatch.protocols.trihe.protocol import TriHe
from groundwatch.protocols.trihe.suite import figures, read_suite
from groundwatch.protocols.trihe.tally import TALLY

METHOD = Method(
    name=TriHe.name,
    protocols=(TriHe(),),
    tally=TALLY,
    suite=read_suite,
    figures=figures,
    world="groundwatch.probing.world:tri_he",
    package=__name__,
)
