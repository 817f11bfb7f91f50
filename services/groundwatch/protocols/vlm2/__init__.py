from groundwatch.protocols.method import Method
from groundwatch.protocols.vlm2.protocol import Vlm2
from groundwatch.protocols.vlm2.suite import figures, read_suite
from groundwatch.protocols.vlm2.tally import TALLY

METHOD = Method(
    name=Vlm2.name,
    protocols=(Vlm2(),),
    tally=TALLY,
    suite=read_suite,
    figures=figures,
    world="groundwatch.probing.world:vlm2",
)
