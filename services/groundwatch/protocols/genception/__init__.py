from groundwatch.protocols.genception.protocol import GenCeption
from groundwatch.protocols.genception.suite import read_suite
from groundwatch.protocols.genception.tally import TALLY
from groundwatch.protocols.method import Method

METHOD = Method(
    name=GenCeption.name,
    protocols=(GenCeption(),),
    tally=TALLY,
    suite=read_suite,
    world=f"{__name__}.world:questions",
    package=__name__,
)
