"""Langfuse: each outcome of a response that came as a span is a score of that span.

The score's id is the evaluation's, so one that is told again replaces itself. An outcome without a score is
one of the name `<protocol>.unscored`, a category: a name has one data type there.
"""

import msgspec

from groundwatch.addresses import below
from groundwatch.errors import SettingsError
from groundwatch.events import ResponseScored
from groundwatch.models.asking import Fault
from groundwatch.outflow.evaluations import Evaluation, evaluation_of
from groundwatch.outflow.receivers.base import HttpReceiver, Refusal, read_secret, user_and_password

PATH = "/api/public/scores"


def score_of(evaluation: Evaluation) -> dict[str, object]:
    """The body of a request."""
    found: dict[str, object] = {
        "id": evaluation.id,
        "traceId": evaluation.trace_id,
        "observationId": evaluation.span_id,
        "metadata": evaluation.details,
    }
    if evaluation.explanation:
        found["comment"] = evaluation.explanation
    if evaluation.score is None:
        what = {"name": f"{evaluation.name}.unscored", "value": evaluation.error, "dataType": "CATEGORICAL"}
        # Another id: a score that follows on it is of another type.
        return {**found, **what, "id": f"{evaluation.id}-unscored"}
    return {**found, "name": evaluation.name, "value": evaluation.score, "dataType": "NUMERIC"}


class LangfuseReceiver(HttpReceiver[ResponseScored]):
    """Its address is the server's; its secret are both keys, with a colon between."""

    spans_only = True

    async def _tell(self, events: list[ResponseScored]) -> int | Refusal | Fault:
        try:
            keys = user_and_password(self.name, read_secret(self.name, self.settings))
        except SettingsError as error:
            return self._misconfigured(str(error))
        (event,) = events
        body = msgspec.json.encode(score_of(evaluation_of(event, explanation=self.settings.explanation)))
        sent = {"content-type": "application/json"}
        reply = await self._post(below(self.settings.url, PATH), body, sent, keys)
        return len(events) if isinstance(reply, bytes) else reply
