from groundwatch.protocols.method import Benchmark
from groundwatch_benchmarks.methods.vlm2.suite import TALLY, figures, read_suite

BENCHMARK = Benchmark(
    tally=TALLY,
    dataset="groundwatch_benchmarks.datasets.vlm2:build_dataset",
    suite=read_suite,
    figures=figures,
    world="groundwatch_benchmarks.worlds:vlm2",
)
