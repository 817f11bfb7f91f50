"""AMBER: what descriptions mention that is not there, and yes/no questions, judged without any LLM."""

from groundwatch.protocols.amber.protocol import PROTOCOLS, Amber
from groundwatch.protocols.amber.suite import TALLY, figures, read_suite
from groundwatch.protocols.method import Method

METHOD = Method(
    name=Amber.name,
    protocols=PROTOCOLS,
    tally=TALLY,
    suite=read_suite,
    figures=figures,
    world="groundwatch_benchmarks.worlds:amber",
)
