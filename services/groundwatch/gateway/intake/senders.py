"""Who has sent in the last minutes, what of it, and which setting mends what was missing in it.

What is kept is bounded, whoever sends whatever: of more than `MOST` senders the last to come are counted
together, names are cut, and of what was not read there is one example.
"""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Self

import msgspec

from groundwatch.conversations.conversation import REASONS, Origin

STRETCH = 600.0
"""Seconds: what is told is of this stretch so far, and of the one before."""

MOST = 100
LONGEST = 300
"""Characters of an example."""

OTHERS = "all other senders"
BATCHES = {
    "otlp": "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=16 with OTEL_BSP_MAX_QUEUE_SIZE=64, for log records "
    "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE=16, for the Langfuse SDK LANGFUSE_FLUSH_AT=16, in a collector "
    "send_batch_max_size: 16",
    "litellm": "DEFAULT_BATCH_SIZE=1 in the environment of LiteLLM",
    "kserve": "smaller images, or a logger without batches",
}
"""What makes a source send smaller requests."""


KINDS = {
    "refused": "calls were not recorded, such as: ",
    "batch_refused": "whole requests were refused, such as: ",
    "ignored": "spans or log records are of no call of a model, such as: ",
}
"""What else there is than the reasons for what calls lack."""


class Problem(msgspec.Struct, frozen=True):
    """What is missing, how often, and the setting that mends it, where there is one."""

    kind: str
    number: int
    what: str
    setting: str = ""


class Sender(msgspec.Struct, kw_only=True):
    """What came of one sender, `last` in seconds since the epoch.

    `source` is the way by which it came, `library` with its `version` what logged the calls, or else the
    program that sent them. `calls` are those that were recorded, `images` theirs. `missing` counts by reason
    what they lack, and what was not recorded by its kind, of which `examples` has the last there was.
    """

    source: str
    tenant: str = ""
    service: str = ""
    library: str = ""
    version: str = ""
    dialect: str = ""
    last: float = 0.0
    calls: int = 0
    images: int = 0
    missing: dict[str, int] = {}
    examples: dict[str, str] = {}

    def record(self, images: int, left_out: Iterable[str]) -> None:
        self.calls += 1
        self.images += images
        for reason in left_out:
            self.miss(reason)

    def miss(self, kind: str, number: int = 1, example: str = "") -> None:
        self.missing[kind] = self.missing.get(kind, 0) + number
        if example:
            self.examples[kind] = example[:LONGEST]

    @property
    def problems(self) -> list[Problem]:
        return [self._problem(kind, number) for kind, number in self.missing.items()]

    def _problem(self, kind: str, number: int) -> Problem:
        if known := REASONS.get(kind):
            return Problem(kind, number, f"{known.library} {known.did}", known.setting)
        what = KINDS.get(kind, "a part of what was said is missing") + self.examples.get(kind, "")
        return Problem(kind, number, what, BATCHES.get(self.source, "") if kind == "batch_refused" else "")

    def after(self, before: Self) -> Self:
        """Both together, of which this one is the later."""
        return msgspec.structs.replace(
            self,
            calls=before.calls + self.calls,
            images=before.images + self.images,
            missing=dict(Counter(before.missing) + Counter(self.missing)),
            examples=before.examples | self.examples,
        )


class Senders:
    def __init__(self) -> None:
        self._now: dict[tuple[str, Origin], Sender] = {}
        self._before: dict[tuple[str, Origin], Sender] = {}
        self._began = time.monotonic()

    def of(self, origin: Origin, tenant: str) -> Sender:
        """The one that a call is of, to be told what became of it."""
        self._turn()
        sender = self._now.get((tenant, origin))
        if sender is None:
            if len(self._now) >= MOST:
                origin, tenant = Origin(source=OTHERS), ""
            made = Sender(tenant=tenant, **msgspec.structs.asdict(origin))
            sender = self._now.setdefault((tenant, origin), made)
        sender.last = time.time()
        return sender

    def rows(self, tenant: str = "") -> list[Sender]:
        """Those of a tenant, or all; who sent last is first."""
        self._turn()
        found = self._before | {
            key: sender.after(before) if (before := self._before.get(key)) else sender
            for key, sender in self._now.items()
        }
        own = [sender for sender in found.values() if tenant in ("", sender.tenant)]
        return sorted(own, key=lambda sender: -sender.last)

    def _turn(self) -> None:
        late = time.monotonic() - self._began
        if late >= STRETCH:
            self._before, self._now = (self._now if late < 2 * STRETCH else {}), {}
            self._began += late
