from groundwatch.protocols.method import Benchmark
from groundwatch_benchmarks.methods.trihe.files import annotate, read_answers
from groundwatch_benchmarks.methods.trihe.suite import TALLY, figures, read_suite

BENCHMARK = Benchmark(
    tally=TALLY,
    validation="groundwatch_benchmarks.agreement.trihe:validate",
    dataset="groundwatch_benchmarks.datasets.trihe:build_dataset",
    answers=read_answers,
    annotate=annotate,
    suite=read_suite,
    figures=figures,
    world="groundwatch_benchmarks.worlds:trihe",
    package=__name__,
)
