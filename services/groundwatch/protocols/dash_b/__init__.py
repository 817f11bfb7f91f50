from groundwatch.protocols.dash_b.suite import DashB, figures, read_suite
from groundwatch.protocols.method import Method

METHOD = Method(
    name=DashB.name,
    protocols=(DashB(),),
    suite=read_suite,
    figures=figures,
    world="groundwatch_benchmarks.worlds:dash_b",
)
