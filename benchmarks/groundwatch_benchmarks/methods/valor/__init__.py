from groundwatch.protocols.method import Benchmark
from groundwatch_benchmarks.methods.valor.suite import TALLY, figures, read_suite

BENCHMARK = Benchmark(
    tally=TALLY,
    file_judge="groundwatch_benchmarks.methods.valor.file_judge:judge_file",
    validation="groundwatch_benchmarks.agreement.valor:validate",
    dataset="groundwatch_benchmarks.datasets.valor:build_dataset",
    suite=read_suite,
    figures=figures,
    world="groundwatch_benchmarks.worlds:valor",
    package=__name__,
)
