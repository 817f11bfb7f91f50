from groundwatch.protocols.method import Method
from groundwatch.protocols.trihe.protocol import TriHe

METHOD = Method(name=TriHe.name, protocols=(TriHe(),))
