"""VALOR-Eval and VALOR-Bench: faithfulness and coverage of objects, attributes and relations."""

from groundwatch.protocols.method import Method
from groundwatch.protocols.valor.protocol import PROTOCOLS
from groundwatch.protocols.valor.suite import figures, read_suite
from groundwatch.protocols.valor.tally import TALLY

METHOD = Method(
    name="valor",
    protocols=tuple(PROTOCOLS.values()),
    tally=TALLY,
    suite=read_suite,
    figures=figures,
    world="groundwatch.probing.world:valor",
    package=__name__,
)
