from groundwatch.protocols.method import Method
from groundwatch.protocols.trihe.files import annotate, read_answers
from groundwatch.protocols.trihe.protocol import TriHe
from groundwatch.protocols.trihe.suite import TALLY, figures, read_suite

METHOD = Method(
    name=TriHe.name,
    protocols=(TriHe(),),
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
