"""What a webhook's receiver gets: a CloudEvent, signed so that the usual libraries can tell."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import pytest
from tests.outflow.conftest import KEY, QUICK, alarm, outcome
from tests.support.receivers import HttpTarget

from groundwatch.outflow.receivers import (
    WebhookReceiver,
    cloud_event,
    evaluation_of,
    make_receiver,
    score_of,
    signature,
)
from groundwatch.runtime.local.servers import free_port
from groundwatch.runtime.settings.outflow import ReceiverSettings
from groundwatch.runtime.telemetry.metrics import Metrics


def verified(body: bytes, headers: dict[str, str], key: str) -> bool:
    """As the specification of Standard Webhooks says it is verified."""
    secret = base64.b64decode(key.removeprefix("whsec_"))
    signed = b".".join((headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body))
    expected = base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()
    return f"v1,{expected}" in headers["webhook-signature"].split(" ")


def test_a_signature_of_the_specification() -> None:
    key = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    made = signature([key], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def test_an_alarm_as_a_signed_cloud_event(http_target: HttpTarget, tmp_path) -> None:
    old, new = KEY, "whsec_" + base64.b64encode(b"another key of thirty-two bytes!").decode()
    (tmp_path / "keys").write_text(f"{new}\n{old}\n")
    settings = ReceiverSettings(
        **QUICK, kind="webhook", url=http_target.url, secret_file=str(tmp_path / "keys")
    )
    receiver = WebhookReceiver("it", settings, Metrics())
    event = alarm("r-1")
    assert await receiver.deliver([event]) == [None]
    assert await receiver.deliver([event]) == [None]
    await receiver.close()
    body, headers = http_target.bodies[0], http_target.headers[0]
    assert headers["content-type"].startswith("application/cloudevents+json")
    assert verified(body, headers, old) and verified(body, headers, new)
    assert not verified(body + b" ", headers, old)
    told = json.loads(body)
    assert (
        told.items()
        >= {
            "specversion": "1.0",
            "type": "groundwatch.alarm.raised",
            "source": "/groundwatch/alarms",
            "subject": "faithscore/heron-7b/color",
            "time": "2023-11-14T22:13:20Z",
            "datacontenttype": "application/json",
        }.items()
    )
    assert told["data"]["after"] == 0.4
    # Told again, it is the same event; its end is another.
    assert http_target.headers[1]["webhook-id"] == headers["webhook-id"] == told["id"]
    over = cloud_event(alarm("r-1", recovered_at=1_700_000_060.0))
    assert (over["type"], over["time"]) == ("groundwatch.alarm.recovered", "2023-11-14T22:14:20Z")
    assert over["id"] != told["id"] and over["subject"] == told["subject"]


async def test_an_alarm_in_a_channel_of_slack(http_target: HttpTarget) -> None:
    settings = ReceiverSettings(**QUICK, kind="slack", url=http_target.url)
    receiver = make_receiver("it", settings, Metrics())
    for over in (None, 1_700_000_060.0):
        assert await receiver.deliver([alarm("r-1", model="<!channel>&co", recovered_at=over)]) == [None]
    await receiver.close()
    told = json.loads(http_target.bodies[0])
    assert set(told) == {"text"} and "&lt;!channel&gt;&amp;co · faithscore: " in told["text"]
    assert "40.0% of color facts not in the image" in told["text"] and "(tenant " in told["text"]
    over = json.loads(http_target.bodies[1])["text"]
    assert over.startswith(":white_check_mark: ") and "over since 2023-11-14 22:14:20Z (tenant " in over


async def test_no_error_shows_the_address_of_a_channel() -> None:
    """It is the secret: errors are logged, and stand in dead letters."""
    settings = ReceiverSettings(
        **QUICK, kind="slack", url=f"http://127.0.0.1:{free_port()}/services/T0/sesame"
    )
    receiver = make_receiver("it", settings, Metrics())
    (error,) = await receiver.deliver([alarm("r-1")])
    await receiver.close()
    assert error is not None and "receiver it at 127.0.0.1:" in str(error) and "sesame" not in str(error)


async def test_an_alarm_as_an_incident_of_pagerduty(http_target: HttpTarget, monkeypatch) -> None:
    monkeypatch.setenv("PAGER", "an-integration-key\n")
    settings = ReceiverSettings(**QUICK, kind="pagerduty", url=http_target.url, secret_env="PAGER")
    receiver = make_receiver("it", settings, Metrics())
    for over in (None, None, 1_700_000_060.0):
        assert await receiver.deliver([alarm("r-1", model="x" * 2_000, recovered_at=over)]) == [None]
    await receiver.close()
    told = json.loads(http_target.bodies[0])
    assert (told["routing_key"], told["event_action"]) == ("an-integration-key", "trigger")
    assert len(told["payload"]["summary"]) == 1_024 and told["payload"]["severity"] == "warning"
    assert told["payload"]["custom_details"]["after"] == 0.4
    # Told again, it is the same incident, and that is resolved.
    again, over = (json.loads(body) for body in http_target.bodies[1:])
    assert (again, over["event_action"]) == (told, "resolve")
    assert told["dedup_key"] == over["dedup_key"]
    with pytest.raises(ValueError, match="needs secret_env or secret_file"):
        ReceiverSettings(kind="pagerduty", url=http_target.url)


@pytest.mark.parametrize(("given", "told"), [("staging", "staging"), ("Langfuse X", None), ("", None)])
def test_a_score_is_of_the_environment_of_its_call(given: str, told: str | None) -> None:
    assert score_of(evaluation_of(outcome("r-1", tags={"environment": given}))).get("environment") == told


def test_alarms_have_ids_of_their_own() -> None:
    events = [alarm("a"), alarm("b"), alarm("a", category="size"), alarm("a", raised_response=8)]
    assert len({cloud_event(one)["id"] for one in events}) == 4


@pytest.mark.parametrize("secret", ["short", "whsec_!!!", "whsec_YWJj"])
async def test_a_key_that_is_none_is_told(http_target: HttpTarget, monkeypatch, secret: str) -> None:
    monkeypatch.setenv("HOOK", secret)
    settings = ReceiverSettings(**QUICK, kind="webhook", url=http_target.url, secret_env="HOOK")
    receiver = WebhookReceiver("it", settings, Metrics())
    (error,) = await receiver.deliver([alarm()])
    await receiver.close()
    assert "openssl rand" in str(error) and secret not in str(error)
    assert not http_target.bodies
