from groundwatch.protocols.method import Benchmark
from groundwatch_benchmarks.methods.pope.suite import TALLY, annotate, figures, read_suite

BENCHMARK = Benchmark(
    tally=TALLY,
    annotate=annotate,
    dataset="groundwatch_benchmarks.datasets.pope:build_dataset",
    suite=read_suite,
    figures=figures,
    world="groundwatch_benchmarks.worlds:pope",
)
