"""VALOR-Eval: faithfulness and coverage of objects, attributes and relations."""

from groundwatch.protocols.method import Method
from groundwatch.protocols.valor.protocol import PROTOCOLS, ValorSettings

METHOD = Method(name="valor", protocols=tuple(PROTOCOLS.values()), settings=ValorSettings)
