"""The first ten minutes: what to type until answers of one's own model are judged, and how far one is."""

from importlib import resources

import msgspec

from groundwatch.gateway.core import GatewayCore

SAMPLE = msgspec.json.decode(resources.files(__package__ or "").joinpath("sample.json").read_bytes())

FEW = 20
"""Answers up to which the steps are shown that are left."""


class FirstSteps(msgspec.Struct, frozen=True, kw_only=True):
    """`sample` sends a first answer to `origin`. What is done: an answer was sent, another model than that of
    the sample is connected, and a judge looks at images."""

    origin: str
    sample: str
    asks: bool
    sent: bool
    connected: bool
    judge: str

    @property
    def left(self) -> int:
        return 3 - self.sent - self.connected - bool(self.judge)


def first_steps(core: GatewayCore, origin: str, judged: set[str]) -> FirstSteps:
    """`judged` are the models with outcomes."""
    came = {
        sample.labels["model"] for family in core.metrics.responses.collect() for sample in family.samples
    }
    header = " -H 'Authorization: Bearer TOKEN'" if core.access.asks else ""
    # It is judged by its reference: the box is not green.
    body = msgspec.json.encode(SAMPLE).decode()
    looking = dict.fromkeys(engine for engine in core.judges.values() if engine != "reference")
    return FirstSteps(
        origin=origin,
        sample=f"curl {origin}/v1/responses -H 'Content-Type: application/json'{header} -d '{body}'",
        asks=core.access.asks,
        sent=bool(came | judged),
        connected=bool((came | judged) - {SAMPLE["model"]}),
        judge=", ".join(looking),
    )
