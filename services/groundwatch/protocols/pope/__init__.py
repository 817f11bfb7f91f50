from groundwatch.protocols.method import Method
from groundwatch.protocols.pope.protocol import TALLY, Pope, annotate, figures, read_suite

METHOD = Method(
    name=Pope.name,
    protocols=(Pope(),),
    tally=TALLY,
    annotate=annotate,
    dataset="groundwatch_benchmarks.datasets.pope:build_dataset",
    suite=read_suite,
    figures=figures,
    world="groundwatch_benchmarks.worlds:pope",
)
