from functools import partial

from groundwatch.protocols.genception.protocol import TALLY, GenCeption, read_suite
from groundwatch.protocols.method import Method, mean_score

METHOD = Method(
    name=GenCeption.name,
    protocols=(GenCeption(),),
    tally=TALLY,
    suite=read_suite,
    figures=partial(mean_score, bounds=GenCeption.bounds),
    world="groundwatch_benchmarks.worlds:genception",
    package=__name__,
)
