"""CHAIR, the baseline that VALOR generalises: COCO objects in captions, by a fixed list of synonyms."""

from groundwatch.protocols.chair.protocol import ChairProtocol
from groundwatch.protocols.method import Method

METHOD = Method(name=ChairProtocol.name, protocols=(ChairProtocol(),))
