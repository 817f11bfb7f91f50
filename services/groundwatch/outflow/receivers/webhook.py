"""A webhook: each alarm is a CloudEvent 1.0 in structured mode, signed as Standard Webhooks has it."""

import base64
import hashlib
import hmac
import time
from datetime import UTC, datetime

import msgspec

from groundwatch.errors import SettingsError
from groundwatch.events import AlarmRaised
from groundwatch.keys import digest
from groundwatch.models.asking import Fault
from groundwatch.outflow.receivers.base import HttpReceiver, Refusal, read_secret, signing_keys

TYPE = "groundwatch.alarm.raised"
SOURCE = "/groundwatch/alarms"


def cloud_event(alarm: AlarmRaised) -> dict[str, object]:
    """The alarm as a CloudEvent; its id is the same whenever it is told."""
    parts = (alarm.run, alarm.protocol, alarm.key, str(alarm.raised_response), alarm.response_id)
    return {
        "specversion": "1.0",
        "id": digest("alarm", *parts)[:32],
        "source": SOURCE,
        "type": TYPE,
        "subject": f"{alarm.protocol}/{alarm.model}/{alarm.category}",
        "time": datetime.fromtimestamp(alarm.raised_at, UTC).isoformat().replace("+00:00", "Z"),
        "datacontenttype": "application/json",
        "data": alarm,
    }


def signature(keys: list[bytes], name: str, at: int, body: bytes) -> str:
    """The header `webhook-signature`: one for each key, so that a key can be changed."""
    signed = f"{name}.{at}.".encode() + body
    made = (base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode() for key in keys)
    return " ".join(f"v1,{one}" for one in made)


class WebhookReceiver(HttpReceiver[AlarmRaised]):
    """Its secret are keys with `whsec_`, one a line."""

    async def _tell(self, events: list[AlarmRaised]) -> int | Refusal | Fault:
        try:
            keys = signing_keys(self.name, read_secret(self.name, self.settings))
        except SettingsError as error:
            return self._misconfigured(str(error))
        (alarm,) = events
        event = cloud_event(alarm)
        body, name, at = msgspec.json.encode(event), str(event["id"]), int(time.time())
        sent = {
            "content-type": "application/cloudevents+json; charset=utf-8",
            "webhook-id": name,
            "webhook-timestamp": str(at),
            "webhook-signature": signature(keys, name, at, body),
        }
        reply = await self._post(self.settings.url, body, sent)
        return 1 if isinstance(reply, bytes) else reply
