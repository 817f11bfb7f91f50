from groundwatch.protocols.method import Method
from groundwatch.protocols.pope.files import TALLY, annotate, figures, read_suite
from groundwatch.protocols.pope.protocol import Pope

METHOD = Method(
    name=Pope.name,
    protocols=(Pope(),),
    tally=TALLY,
    annotate=annotate,
    dataset="groundwatch_benchmarks.datasets.pope:build_dataset",
    suite=read_suite,
    figures=figures,
    world=f"{__name__}.world:questions",
)
