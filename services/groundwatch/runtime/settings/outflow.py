"""What can be set of the outflow: who is told of outcomes and alarms."""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from groundwatch.models.settings import AskingSettings
from groundwatch.section import AtLeastOne, HttpAddress, Positive, Section, wrong

_is_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z").match


def _name(name: str) -> str:
    if not _is_name(name):
        raise ValueError("a receiver's name has letters, digits, - and _, at most 64")
    return name


ReceiverName = Annotated[str, AfterValidator(_name)]
Kind = Literal["otlp-http", "langfuse", "phoenix", "webhook", "slack", "pagerduty"]

OF_ALARMS = ("webhook", "slack", "pagerduty")
"""Kinds that are told of alarms, and not of outcomes."""

SIGNED = ("langfuse", "webhook", "pagerduty")
"""Kinds that need a secret."""


class ReceiverSettings(AskingSettings):
    """One receiver: of outcomes, or with a `kind` of `OF_ALARMS` of alarms.

    `secret_env` names the environment variable, or `secret_file` the file, that holds what it knows us by.
    `tenants` are those whose outcomes and alarms it gets; empty: all. `declined`: outcomes that were sampled
    out as well. `explanation`: with the reasons, which quote the answer. `tls_ca` is a file of certificates
    that are trusted instead of the system's.
    """

    kind: Kind
    url: HttpAddress
    secret_env: str = ""
    secret_file: str = ""
    tls_ca: str = ""
    tenants: tuple[str, ...] = ()
    declined: bool = False
    explanation: bool = True
    timeout: Positive = 10.0
    concurrency: AtLeastOne = 4

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.secret_env and self.secret_file:
            raise wrong("secret_file", "only one of secret_env and secret_file")
        if self.kind in SIGNED and not (self.secret_env or self.secret_file):
            raise wrong("secret_env", f"a receiver of kind {self.kind} needs secret_env or secret_file")
        return self


class OutflowSettings(Section):
    """Who is told of outcomes and alarms, each receiver by a name of its own."""

    receivers: dict[ReceiverName, ReceiverSettings] = Field(default_factory=dict)
