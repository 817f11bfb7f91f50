from groundwatch.protocols.genception.files import TALLY, read_suite
from groundwatch.protocols.genception.protocol import GenCeption
from groundwatch.protocols.method import Method

METHOD = Method(
    name=GenCeption.name,
    protocols=(GenCeption(),),
    tally=TALLY,
    suite=read_suite,
    world=f"{__name__}.world:questions",
    package=__name__,
)
