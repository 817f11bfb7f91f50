"""Alerts about NATS, and about what is away: they fire when they must, and not while something restarts."""

from __future__ import annotations

from tests.deploy.prometheus.conftest import Case, Series, alert, phases, steady

SETTING = "nats.tls_cert"


def nats(name: str, first: str, second: str) -> Series:
    """A figure of two servers, as two gateways tell it."""
    return {
        f'groundwatch_nats_{name}{{server="{server}:8222", pod="{pod}"}}': values
        for server, values in (("n1", first), ("n2", second))
        for pod in "ab"
    }


def stores(stored: str, limit: str) -> Series:
    return {
        'groundwatch_nats_stored_bytes{server="n1:8222", store="file"}': stored,
        'groundwatch_nats_store_limit_bytes{server="n1:8222", store="file"}': limit,
        'groundwatch_nats_stored_bytes{server="n1:8222", store="memory"}': "0x60",
        'groundwatch_nats_store_limit_bytes{server="n1:8222", store="memory"}': "0x60",
    }


def requests(**per_minute: float) -> Series:
    return {
        f'groundwatch_model_requests_total{{stage="verification", result="{result}"}}': steady(rate, 40)
        for result, rate in per_minute.items()
    }


FIRES = {
    "NATS is away for all": Case(
        series={f'groundwatch_nats_connected{{pod="{pod}"}}': "1x4 0x10" for pod in "ab"},
        at=9,
        fires=[alert("NatsAway", "critical", of="all")],
    ),
    "NATS is away for one of three": Case(
        series={
            'groundwatch_nats_connected{pod="a"}': "1x4 0x20",
            'groundwatch_nats_connected{pod="b"}': "1x30",
            'groundwatch_nats_connected{pod="c"}': "1x30",
        },
        at=20,
        fires=[alert("NatsAway", "warning", of="some")],
    ),
    "one server of NATS is away": Case(
        series=nats("monitor_up", "1x4 0x20", "1x30"),
        at=12,
        fires=[alert("NatsServerAway", "warning", server="n1:8222")],
    ),
    "NATS' disk fills": Case(
        series=stores("50+1x60", "100x60"),
        at=44,
        fires=[alert("NatsStorageFull", "warning", server="n1:8222", store="file")],
    ),
    "NATS is full": Case(
        series=stores("96x30", "100x30"),
        at=20,
        fires=[
            alert("NatsStorageFull", severity, server="n1:8222", store="file")
            for severity in ("warning", "critical")
        ],
    ),
    "NATS needs more memory than it has": Case(
        series=nats("memory_bytes", "90x4 120x20", "90x30") | nats("memory_limit_bytes", "100x30", "100x30"),
        at=15,
        fires=[alert("NatsMemoryHigh", "critical", server="n1:8222")],
    ),
    "a server of a cluster has switched JetStream off": Case(
        series=nats("jetstream_up", "1x4 0x20", "1x30"),
        at=15,
        fires=[alert("NatsJetStreamOff", "critical", server="n1:8222")],
    ),
    "nobody leads": Case(
        series=nats("leaderless_streams", "0x4 7x20", "0x30"),
        at=10,
        fires=[alert("NatsNoLeader", "critical", server="n1:8222")],
    ),
    "a copy is not up to date": Case(
        series=nats("replicas_behind", "0x4 3x30", "0x4 2x30"),
        at=25,
        fires=[alert("NatsReplicasBehind", "warning")],
    ),
    "NATS cuts a client off": Case(
        series=nats("slow_consumers_total", "4x9 5x20", "0x30"),
        at=15,
        fires=[alert("NatsSlowConsumers", "warning", server="n1:8222")],
    ),
    "no gateway is ready": Case(
        series={
            f'groundwatch_ready{{service="gateway", pod="{pod}"}}': values
            for pod, values in (("a", "1x4 0x20"), ("b", "1x6 0x20"))
        },
        at=15,
        fires=[alert("GatewayNotReady", "critical")],
    ),
    "the gateways are gone, the stages are not": Case(
        series={
            'groundwatch_ready{service="gateway", pod="a"}': "1x4",
            'groundwatch_ready{service="scoring", pod="b"}': "1x40",
        },
        at=20,
        fires=[alert("GatewayNotReady", "critical")],
    ),
    "the archive is not ready": Case(
        series={'groundwatch_ready{service="archive"}': "1x4 0x30"},
        at=25,
        fires=[alert("ServiceNotReady", "warning", service="archive"), alert("GatewayNotReady", "critical")],
    ),
    "the outflow is gone": Case(
        series={
            'groundwatch_ready{service="outflow"}': "1x4",
            'groundwatch_ready{service="gateway"}': "1x40",
        },
        at=35,
        fires=[alert("ServiceNotReady", "warning", service="outflow")],
    ),
    "Triton is away": Case(
        series={
            f'groundwatch_models_not_ready{{stage="verification", pod="{pod}"}}': "0x4 2x20" for pod in "ab"
        },
        at=20,
        fires=[alert("ModelsNotReady", "critical", stage="verification")],
    ),
    "a judge fails at a third": Case(
        series=requests(ok=20, timeout=6, server_error=4),
        at=25,
        fires=[alert("JudgeFails", "warning", stage="verification")],
    ),
    "the archive is silent": Case(
        series={
            'groundwatch_archive_lag{stream="GW_OUTCOMES"}': "0x9 40+1x60",
            'groundwatch_archive_rows_total{table="outcomes"}': phases((50, 5), (0, 60)),
        },
        at=60,
        fires=[alert("ArchiveCannotWrite", "warning", reason="silent")],
    ),
    "a stream that is not cooled": Case(
        series={
            'groundwatch_archive_hot_seconds{stream="GW_JUDGED"}': "217000+60x100",
            'groundwatch_archive_hot_seconds{stream="GW_OUTCOMES"}': "215000x100",
            'groundwatch_archive_hot_window_seconds{stream="GW_JUDGED"}': "172800x100",
            'groundwatch_archive_hot_window_seconds{stream="GW_OUTCOMES"}': "172800x100",
        },
        at=90,
        fires=[alert("HotWindowNotCooled", "warning", stream="GW_JUDGED")],
    ),
    "there is no auditor": Case(
        series={'groundwatch_audit_seconds{run="live"}': "_x500"},
        at=70,
        fires=[alert("AuditOverdue", "warning", run="live")],
    ),
    "an auditor that ends before it is through": Case(
        series={
            'groundwatch_audit_seconds{run="live"}': "9x60 _x500",
            'groundwatch_audit_end_time_seconds{run="live"}': "0+60x600",
            'groundwatch_audit_period_seconds{run="live"}': "21600x600",
        },
        at=500,
        fires=[alert("AuditOverdue", "warning", run="live")],
    ),
    "a certificate ends in ten days": Case(
        series={'groundwatch_certificate_end_time_seconds{certificate="nats.tls_cert"}': f"{10 * 86400}x30"},
        at=20,
        fires=[alert("CertificateEnds", "warning", certificate=SETTING)],
    ),
    "a certificate ends tomorrow": Case(
        series={
            f'groundwatch_certificate_end_time_seconds{{certificate="{SETTING}", pod="{pod}"}}': f"{end}x30"
            for pod, end in (("new", 90 * 86400), ("old", 86400))
        },
        at=20,
        fires=[
            alert("CertificateEnds", severity, certificate=SETTING) for severity in ("warning", "critical")
        ],
    ),
}

SILENT = {
    "NATS restarts": Case(
        series={f'groundwatch_nats_connected{{pod="{pod}"}}': "1x4 0x2 1x20" for pod in "ab"}
        | nats("monitor_up", "1x4 0x2 1x20", "1x30")
        | nats("jetstream_up", "1x3 _x3 0x2 1x20", "1x30")
        | nats("leaderless_streams", "0x4 5x1 0x20", "0x30")
        | nats("replicas_behind", "0x4 5x9 0x20", "0x30"),
        at=8,
    ),
    # Five minutes in which each process and each server is exchanged, one after the other.
    "a rollout": Case(
        series={
            'groundwatch_nats_connected{pod="old"}': "1x6",
            'groundwatch_nats_connected{pod="new"}': "_x7 0x1 1x30",
            'groundwatch_ready{service="gateway", pod="old"}': "1x6 0x1",
            'groundwatch_ready{service="gateway", pod="new"}': "_x7 0x3 1x30",
            'groundwatch_ready{service="archive", pod="old"}': "1x6",
            'groundwatch_ready{service="archive", pod="new"}': "_x9 0x1 1x30",
            'groundwatch_models_not_ready{stage="verification"}': "0x4 1x5 0x30",
        }
        | nats("monitor_up", "1x4 0x3 1x30", "1x8 0x3 1x30")
        | nats("replicas_behind", "0x4 5x4 0x30", "0x9 5x4 0x30"),
        at=11,
    ),
    "NATS' stores have room, and memory has no limit": Case(
        series=stores("79x60", "100x60") | nats("memory_bytes", "1e12x60", "1x60"), at=50
    ),
    "a stage that is scaled to zero, and gateways that are ready": Case(
        series={
            'groundwatch_ready{service="scoring"}': "1x4",
            'groundwatch_ready{service="gateway", pod="a"}': "1x60",
            'groundwatch_ready{service="gateway", pod="b"}': "0x60",
        },
        at=50,
    ),
    "a judge whose replies cannot be read, and one that is hardly asked": Case(
        series=requests(ok=10, timeout=2, unparsable_reply=100), at=35
    ),
    "an archive that writes what comes": Case(
        series={
            'groundwatch_archive_lag{stream="GW_OUTCOMES"}': "40x60",
            'groundwatch_archive_rows_total{table="outcomes"}': steady(5, 60),
        },
        at=55,
    ),
    # Places of messages that were erased: nothing is to be written of them.
    "an archive with nothing left to write": Case(
        series={
            'groundwatch_archive_lag{stream="GW_OUTCOMES"}': "3x60",
            'groundwatch_archive_rows_total{table="outcomes"}': "500x60",
        },
        at=55,
    ),
    "an auditor that was restarted": Case(
        series={'groundwatch_audit_seconds{run="live"}': "9x60 _x240 8x100"}, at=350
    ),
    "certificates that last": Case(
        series={'groundwatch_certificate_end_time_seconds{certificate="nats.tls_cert"}': f"{15 * 86400}x30"},
        at=20,
    ),
}
