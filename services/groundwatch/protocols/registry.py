"""Where a protocol is found by name: adding one means adding a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from groundwatch.errors import UsageError
from groundwatch.protocols.base import EvaluationProtocol
from groundwatch.protocols.chair.protocol import ChairProtocol
from groundwatch.protocols.faithscore.protocol import FaithScore
from groundwatch.protocols.genception.protocol import GenCeption
from groundwatch.protocols.pope.protocol import Pope
from groundwatch.protocols.trihe.protocol import TriHe
from groundwatch.protocols.valor.protocol import PROTOCOLS as VALOR
from groundwatch.protocols.vlm2.protocol import Vlm2

_MAKERS: dict[str, Callable[[], EvaluationProtocol]] = {
    ChairProtocol.name: ChairProtocol,
    FaithScore.name: FaithScore,
    GenCeption.name: GenCeption,
    Pope.name: Pope,
    TriHe.name: TriHe,
    Vlm2.name: Vlm2,
    **{kind.name: kind for kind in VALOR.values()},
}
_made: dict[str, EvaluationProtocol] = {}


def names() -> tuple[str, ...]:
    """The known protocols, in alphabetical order."""
    return tuple(sorted(_MAKERS.keys() | _made.keys()))


def get(name: str) -> EvaluationProtocol:
    """The protocol of this name; raises `UsageError` listing those that there are."""
    if name not in _made:
        if name not in _MAKERS:
            raise UsageError(f"no protocol '{name}'; known are {', '.join(names())}")
        _made[name] = _MAKERS[name]()
    return _made[name]


def configure(protocol: EvaluationProtocol) -> None:
    """Let this one be found under its name from now on: a protocol made from settings at start."""
    _made[protocol.name] = protocol


@contextmanager
def registered(protocol: EvaluationProtocol) -> Iterator[EvaluationProtocol]:
    """`configure` for the length of a `with` block: for tests and benchmarks."""
    before = _made.get(protocol.name)
    configure(protocol)
    try:
        yield protocol
    finally:
        if before is None:
            del _made[protocol.name]
        else:
            _made[protocol.name] = before
