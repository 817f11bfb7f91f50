from groundwatch.protocols.method import Method
from groundwatch.protocols.pope.protocol import Pope

METHOD = Method(name=Pope.name, protocols=(Pope(),))
