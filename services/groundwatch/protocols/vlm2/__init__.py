from groundwatch.protocols.method import Method
from groundwatch.protocols.vlm2.files import TALLY, figures, read_suite
from groundwatch.protocols.vlm2.protocol import Vlm2, Vlm2Settings

METHOD = Method(
    name=Vlm2.name,
    protocols=(Vlm2(),),
    settings=Vlm2Settings,
    tally=TALLY,
    dataset="groundwatch_benchmarks.datasets.vlm2:build_dataset",
    suite=read_suite,
    figures=figures,
    world="groundwatch_benchmarks.worlds:vlm2",
)
