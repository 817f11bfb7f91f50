from groundwatch.protocols.method import Method
from groundwatch.protocols.valor.protocol import PROTOCOLS
from groundwatch.protocols.valor.tally import TALLY

METHOD = Method(name="valor", protocols=tuple(PROTOCOLS.values()), tally=TALLY, package=__name__)
