"""Where a tally is found by its protocol's name: adding one means adding a line here."""

from __future__ import annotations

from groundwatch.errors import UsageError
from groundwatch.protocols.faithscore.tally import TALLY as FAITHSCORE
from groundwatch.protocols.genception.tally import TALLY as GENCEPTION
from groundwatch.protocols.pope.tally import TALLY as POPE
from groundwatch.protocols.tally import Result, Tally, TallyRequest
from groundwatch.protocols.trihe.tally import TALLY as TRIHE
from groundwatch.protocols.valor.tally import TALLY as VALOR
from groundwatch.protocols.vlm2.tally import TALLY as VLM2

TALLIES: dict[str, Tally] = {
    "faithscore": FAITHSCORE,
    "genception": GENCEPTION,
    "pope": POPE,
    "tri-he": TRIHE,
    "valor": VALOR,
    "vlm2": VLM2,
}


def tally(protocol: str, request: TallyRequest) -> Result:
    """Do one protocol's arithmetic over a file; raises `UsageError` listing those that there are."""
    return find(protocol).run(protocol, request)


def find(protocol: str) -> Tally:
    """The tally of this name; raises `UsageError` listing those that there are."""
    if protocol not in TALLIES:
        raise UsageError(
            f"groundwatch tally knows no file format of '{protocol}'; known are {', '.join(sorted(TALLIES))}"
        )
    return TALLIES[protocol]
