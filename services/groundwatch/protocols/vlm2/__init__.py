from groundwatch.protocols.method import Method
from groundwatch.protocols.vlm2.protocol import Vlm2, Vlm2Settings

METHOD = Method(name=Vlm2.name, protocols=(Vlm2(),), settings=Vlm2Settings)
