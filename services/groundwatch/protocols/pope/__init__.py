from groundwatch.protocols.method import Method
from groundwatch.protocols.pope.protocol import Pope
from groundwatch.protocols.pope.suite import figures, read_suite
from groundwatch.protocols.pope.tally import TALLY

METHOD = Method(
    name=Pope.name,
    protocols=(Pope(),),
    tally=TALLY,
    suite=read_suite,
    figures=figures,
    world="groundwatch.probing.world:pope",
)
