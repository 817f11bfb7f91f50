from groundwatch.protocols.method import Benchmark
from groundwatch_benchmarks.methods.faithscore.suite import TALLY, figures, read_answers, read_suite

BENCHMARK = Benchmark(
    tally=TALLY,
    answers=read_answers,
    validation="groundwatch_benchmarks.agreement.faithscore:validate",
    suite=read_suite,
    figures=figures,
    world="groundwatch_benchmarks.worlds:faithscore",
    package=__name__,
)
