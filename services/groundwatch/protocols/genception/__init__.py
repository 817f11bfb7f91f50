from groundwatch.protocols.genception.protocol import GenCeption
from groundwatch.protocols.method import Method

METHOD = Method(name=GenCeption.name, protocols=(GenCeption(),))
