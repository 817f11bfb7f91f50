"""Which responses are judged: decided by hashing, so that every gateway and every repeat decides alike."""

from __future__ import annotations

from collections.abc import Sequence

from groundwatch.events import digest
from groundwatch.runtime.settings import SamplingRule

SAMPLED_OUT = "sampled_out"

_DIGITS = 13
"""Hex digits that become the position: 52 bits, which a float holds exactly."""


def position(salt: str, tenant: str, model: str, protocol: str, response_id: str) -> float:
    """Where a response stands in [0, 1), uniformly over ids and for ever.

    A response is chosen when this is below the rate; so whatever a rate chooses, every higher rate under
    the same salt chooses too.
    """
    number = int(digest(salt, tenant, model, protocol, response_id)[:_DIGITS], 16)
    return number / float(16**_DIGITS)


def rule_for(rules: Sequence[SamplingRule], tenant: str, model: str, protocol: str) -> SamplingRule | None:
    """The first rule whose fields all match; None: everything is judged."""
    for rule in rules:
        if rule.tenant in ("", tenant) and rule.model in ("", model) and rule.protocol in ("", protocol):
            return rule
    return None


def declined(
    rules: Sequence[SamplingRule], tenant: str, model: str, protocols: Sequence[str], response_id: str
) -> dict[str, str]:
    """The protocols that are not judged for this response, each with its reason."""
    out: dict[str, str] = {}
    if not rules:
        return out
    for protocol in protocols:
        rule = rule_for(rules, tenant, model, protocol)
        if rule is None or rule.rate >= 1.0:
            continue
        if position(rule.salt, tenant, model, protocol, response_id) >= rule.rate:
            out[protocol] = SAMPLED_OUT
    return out
