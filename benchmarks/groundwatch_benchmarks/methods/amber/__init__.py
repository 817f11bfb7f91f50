"""AMBER: what descriptions mention that is not there, and yes/no questions, judged without any LLM."""

from groundwatch.protocols.method import Benchmark, Method
from groundwatch_benchmarks.methods.amber.protocol import PROTOCOLS, Amber
from groundwatch_benchmarks.methods.amber.suite import TALLY, figures, read_suite

METHOD = Method(
    name=Amber.name,
    protocols=PROTOCOLS,
    benchmark=Benchmark(
        tally=TALLY,
        suite=read_suite,
        figures=figures,
        world="groundwatch_benchmarks.worlds:amber",
    ),
)
