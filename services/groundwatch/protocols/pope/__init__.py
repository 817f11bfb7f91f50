from groundwatch.protocols.method import Method
from groundwatch.protocols.pope.protocol import Pope
from groundwatch.protocols.pope.tally import TALLY

METHOD = Method(name=Pope.name, protocols=(Pope(),), tally=TALLY)
