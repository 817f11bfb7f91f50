"""VALOR-Eval and VALOR-Bench: faithfulness and coverage of objects, attributes and relations."""

from groundwatch.protocols.method import Method
from groundwatch.protocols.valor.protocol import PROTOCOLS, ValorSettings
from groundwatch.protocols.valor.suite import TALLY, figures, read_suite

METHOD = Method(
    name="valor",
    protocols=tuple(PROTOCOLS.values()),
    settings=ValorSettings,
    tally=TALLY,
    file_judge=f"{__name__}.file_judge:judge_file",
    validation="groundwatch_benchmarks.agreement.valor:validate",
    dataset="groundwatch_benchmarks.datasets.valor:build_dataset",
    suite=read_suite,
    figures=figures,
    world="groundwatch_benchmarks.worlds:valor",
    package=__name__,
)
