from groundwatch.protocols.genception.protocol import GenCeption
from groundwatch.protocols.genception.suite import read_suite
from groundwatch.protocols.genception.tally import TALLY
from groundwatch.protocols.method import Method

METHOD = Method(
    name=GenCeption.name,
    protocols=(GenCeption(),),
    tally=TALLY,
    suite=read_suite,
    world="groundwatch.probing.world:genception",
    package=__name__,
)
