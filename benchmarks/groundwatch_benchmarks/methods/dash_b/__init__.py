from groundwatch.protocols.method import Benchmark, Method
from groundwatch_benchmarks.methods.dash_b.suite import DashB, figures, read_suite

METHOD = Method(
    name=DashB.name,
    protocols=(DashB(),),
    benchmark=Benchmark(
        suite=read_suite,
        figures=figures,
        world="groundwatch_benchmarks.worlds:dash_b",
    ),
)
