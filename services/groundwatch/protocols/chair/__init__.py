from groundwatch.protocols.chair.protocol import ChairProtocol
from groundwatch.protocols.method import Method

METHOD = Method(name=ChairProtocol.name, protocols=(ChairProtocol(),))
