from groundwatch.protocols.method import Method
from groundwatch.protocols.pope.protocol import Pope
from groundwatch.protocols.pope.suite import figures, read_suite
from groundwatch.protocols.pope.tally import TALLY, annotate

METHOD = Method(
    name=Pope.name,
    protocols=(Pope(),),
    tally=TALLY,
    annotate=annotate,
    dataset=f"{__name__}.dataset:build_dataset",
    suite=read_suite,
    figures=figures,
    world=f"{__name__}.world:questions",
)
