"""Phoenix: each outcome of a response that came as a span is an annotation of that span.

Its `identifier` is the evaluation's id, so one that is told again replaces itself.
"""

import msgspec

from groundwatch.addresses import below
from groundwatch.errors import SettingsError
from groundwatch.events import ResponseScored
from groundwatch.models.asking import Fault
from groundwatch.outflow.evaluations import Evaluation, evaluation_of
from groundwatch.outflow.receivers.base import HttpReceiver, Refusal, read_secret

PATH = "/v1/span_annotations"


def annotation_of(evaluation: Evaluation) -> dict[str, object]:
    """One annotation of a request."""
    result = {
        "score": evaluation.score,
        "label": evaluation.label or evaluation.error,
        "explanation": evaluation.explanation,
    }
    return {
        "span_id": evaluation.span_id,
        "name": evaluation.name,
        "annotator_kind": "LLM",
        "identifier": evaluation.id,
        "result": {name: value for name, value in result.items() if value not in (None, "")},
        "metadata": {**evaluation.details, **({"error.type": evaluation.error} if evaluation.error else {})},
    }


class PhoenixReceiver(HttpReceiver[ResponseScored]):
    """Its address is the server's; its secret, where it wants one, is an API key."""

    most = 64
    spans_only = True

    async def _tell(self, events: list[ResponseScored]) -> int | Refusal | Fault:
        try:
            key = read_secret(self.name, self.settings)
        except SettingsError as error:
            return self._misconfigured(str(error))
        told = [annotation_of(evaluation_of(one, explanation=self.settings.explanation)) for one in events]
        sent = {"content-type": "application/json", **({"authorization": f"Bearer {key}"} if key else {})}
        reply = await self._post(below(self.settings.url, PATH), msgspec.json.encode({"data": told}), sent)
        return len(events) if isinstance(reply, bytes) else reply
