from groundwatch.protocols.method import Method
from groundwatch.protocols.trihe.files import annotate, read_answers
from groundwatch.protocols.trihe.protocol import TriHe
from groundwatch.protocols.trihe.suite import TALLY, figures, read_suite

METHOD = Method(
    name=TriHe.name,
    protocols=(TriHe(),),
    tally=TALLY,
    validation=f"{__name__}.validation:validate",
    dataset="groundwatch_benchmarks.datasets.trihe:build_dataset",
    answers=read_answers,
    annotate=annotate,
    suite=read_suite,
    figures=figures,
    world=f"{__name__}.world:questions",
    package=__name__,
)
