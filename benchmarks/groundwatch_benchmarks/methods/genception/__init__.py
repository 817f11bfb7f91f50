from groundwatch.protocols.method import Benchmark
from groundwatch_benchmarks.methods.genception.suite import TALLY, figures, read_suite

BENCHMARK = Benchmark(
    tally=TALLY,
    suite=read_suite,
    chain_figures=figures,
    world="groundwatch_benchmarks.worlds:genception",
    package=__name__,
)
