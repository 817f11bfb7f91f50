"""What every process tells of itself: whether it is ready, whether it reaches NATS, when its files end."""

from __future__ import annotations

from pathlib import Path

import trustme
from cryptography import x509
from tests.runtime.conftest import eventually

from groundwatch.runtime.delivery.bus import Bus
from groundwatch.runtime.delivery.provisioning import provision
from groundwatch.runtime.local.servers import NatsServer
from groundwatch.runtime.services.run import observed
from groundwatch.runtime.settings import NatsSettings, Settings
from groundwatch.runtime.telemetry.metrics import Metrics
from groundwatch.system.services import make_service


async def test_a_process_tells_that_nats_is_away_and_that_it_is_not_ready(own_server: NatsServer) -> None:
    settings, metrics = Settings(nats=NatsSettings(url=own_server.url)), Metrics()

    def told() -> tuple[float | None, float | None]:
        value = metrics.registry.get_sample_value
        return value("groundwatch_nats_connected"), value("groundwatch_ready", {"service": "scoring"})

    bus = Bus(settings.nats, name="scoring")
    await bus.connect()
    try:
        await provision(bus.js)
        async with observed(bus, "scoring", settings, metrics):
            service = make_service("scoring", settings, bus, metrics)
            assert told() == (1, 0)
            await service.start()
            await eventually(lambda: told() == (1, 1), within=60)
            own_server.kill()
            await own_server.wait()
            await eventually(lambda: told() == (0, 0), within=60)
            await own_server.restart()
            await eventually(lambda: told() == (1, 1), within=60)
            await service.drain(1.0)
    finally:
        await bus.close()


async def test_a_process_tells_when_the_certificates_end_that_it_has_loaded(bus: Bus, tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    trustme.CA().cert_pem.write_to_path(str(authority))
    settings, metrics = Settings(nats=NatsSettings(tls_ca=str(authority))), Metrics()
    async with observed(bus, "scoring", settings, metrics):
        ends = x509.load_pem_x509_certificate(authority.read_bytes()).not_valid_after_utc
        (told,) = metrics.certificate_end.collect()[0].samples
        assert (told.labels, told.value) == ({"certificate": "nats.tls_ca"}, ends.timestamp())
