"""Consumers that are not declared, since settings name who they are for."""

from typing import Literal

from groundwatch.events import LIVE
from groundwatch.topology import ALARMS, OUTCOMES, OUTFLOW, ConsumerSpec, run_subjects


def receiver_consumer(receiver: str, kind: Literal["outcome", "alarm"]) -> ConsumerSpec:
    """The durable consumer of a receiver that settings name; `outflow` makes it: nobody else knows it."""
    return ConsumerSpec(
        name=f"{OUTFLOW}-to-{receiver}",
        stream=OUTCOMES if kind == "outcome" else ALARMS,
        filters=(run_subjects(kind, LIVE),),
        description=f"What {receiver} is told of",
        max_ack_pending=1_000,
    )
