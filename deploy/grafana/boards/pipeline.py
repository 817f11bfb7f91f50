"""The dashboard Pipeline: whether every stage keeps up, and what went wrong in it."""

from __future__ import annotations

from deploy.grafana.boards.frame import choice, frame, gateway
from deploy.grafana.boards.panels import Column, Query, figure, lines, rows
from deploy.grafana.boards.promql import backlog, increase, quantile, rate, replicas
from grafana_foundation_sdk.builders import dashboard

STAGE = 'stage=~"$stage"'
R = "$__rate_interval"
DELAY = "groundwatch_outcome_delay_seconds"
OURS = "groundwatch_consumer_up"
"""Every process of ours has it, whatever its job is called."""


def pipeline() -> dashboard.Dashboard:
    """Throughput, delay, backlog, replicas, errors and dead letters of each stage."""
    made = (
        frame(
            "groundwatch / Pipeline",
            "groundwatch-pipeline",
            "Whether every stage keeps up with its own backlog, and what went wrong on the way.",
            since="now-1h",
        )
        .with_variable(choice("stage", "stage", "label_values(groundwatch_stage_seconds_count, stage)"))
        .with_variable(gateway())
    )
    _figures(made)
    _flow(made)
    _stages(made)
    _faults(made)
    _budgets(made)
    _archive(made)
    _stores(made)
    _processes(made)
    return made


def _figures(made: dashboard.Dashboard) -> None:
    made.with_panel(
        figure(
            "Recorded",
            "Responses that the gateway recorded a second, over five minutes.",
            "sum(rate(groundwatch_responses_total[5m]))",
            unit="reqps",
            decimals=2,
        )
    )
    made.with_panel(
        figure(
            "Outcomes",
            "Outcomes a second, over five minutes: one for each response and protocol.",
            "sum(rate(groundwatch_outcomes_total[5m]))",
            unit="ops",
            decimals=2,
        )
    )
    made.with_panel(
        figure(
            "Delay, 99 %",
            "From recording a response to its outcome, over the range of the dashboard.",
            quantile(0.99, DELAY, "", window="$__range"),
            unit="s",
            decimals=2,
        )
    )
    made.with_panel(
        figure(
            "Backlog",
            "Messages that wait for a stage or are held by it.",
            f"sum({backlog(STAGE)})",
            decimals=0,
        )
    )
    made.with_panel(
        figure(
            "Dead letters",
            "Events that could not be processed and wait for somebody: groundwatch admin dead list.",
            "max(groundwatch_dead_letters_waiting)",
            decimals=0,
            red_from=1,
        )
    )
    made.with_panel(
        figure(
            "Consumers missing",
            "Durable consumers that somebody deleted or nobody provisioned: groundwatch admin provision.",
            "count(min by (consumer) (groundwatch_consumer_up) == 0) or vector(0)",
            decimals=0,
            red_from=1,
        )
    )


def _flow(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("From recording to outcome"))
    made.with_panel(
        lines(
            "In and out",
            "Responses recorded and outcomes written, a second. Outcomes fall behind while a backlog grows; "
            "a response with two protocols has two.",
            [
                Query(f"sum(rate(groundwatch_responses_total[{R}]))", "recorded"),
                Query(f"sum by (outcome) (rate(groundwatch_outcomes_total[{R}]))", "{{outcome}}"),
            ],
            unit="ops",
        )
    )
    made.with_panel(
        lines(
            "Delay of an outcome",
            "From recording a response to its outcome: median, 95 % and 99 %.",
            [Query(quantile(q, DELAY, ""), name) for q, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))],
            unit="s",
        )
    )


def _stages(made: dashboard.Dashboard) -> None:
    done = f'{STAGE},result="done"'
    made.with_row(dashboard.Row("Stages"))
    made.with_panel(
        rows(
            "Stages now",
            "Each stage over the range of the dashboard; backlog and replicas as of now.",
            {"stage": "Stage"},
            [
                Column(
                    "Done a second",
                    rate("groundwatch_stage_messages_total", done, "stage", "$__range"),
                    "ops",
                    2,
                ),
                Column("p50", quantile(0.5, "groundwatch_stage_seconds", STAGE, "stage", "$__range"), "s", 3),
                Column(
                    "p95", quantile(0.95, "groundwatch_stage_seconds", STAGE, "stage", "$__range"), "s", 3
                ),
                Column(
                    "p99", quantile(0.99, "groundwatch_stage_seconds", STAGE, "stage", "$__range"), "s", 3
                ),
                Column("Backlog", backlog(STAGE)),
                Column("Replicas", replicas(STAGE)),
                Column(
                    "Retried",
                    increase(
                        "groundwatch_stage_messages_total", f'{STAGE},result="retried"', "stage", "$__range"
                    ),
                ),
                Column("Came again", increase("groundwatch_redeliveries_total", STAGE, "stage", "$__range")),
                Column(
                    "Dead letters", increase("groundwatch_dead_letters_total", STAGE, "stage", "$__range")
                ),
            ],
            height=8,
        )
    )
    made.with_panel(
        lines(
            "Throughput",
            "Messages that each stage was done with, a second.",
            [Query(rate("groundwatch_stage_messages_total", done, "stage"), "{{stage}}")],
            unit="ops",
        )
    )
    made.with_panel(
        lines(
            "Time in a stage",
            "How long a stage held a message, its batch included: 95 %.",
            [Query(quantile(0.95, "groundwatch_stage_seconds", STAGE, "stage"), "{{stage}}")],
            unit="s",
        )
    )
    made.with_panel(
        lines(
            "Backlog",
            "Messages that wait for a stage or are held by it; this is what a stage is scaled on. A line "
            "that climbs needs more replicas, or sampling.",
            [Query(backlog(STAGE), "{{stage}}")],
        )
    )
    made.with_panel(
        lines(
            "Replicas",
            "Processes in which each stage runs, by what Prometheus scrapes.",
            [Query(replicas(STAGE), "{{stage}}")],
            decimals=0,
        )
    )


def _faults(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("Errors"))
    made.with_panel(
        lines(
            "Handed back",
            "Messages that a stage handed back because a fault may pass, a second.",
            [
                Query(
                    rate("groundwatch_stage_messages_total", f'{STAGE},result="retried"', "stage"),
                    "{{stage}}",
                )
            ],
            unit="ops",
            width=8,
        )
    )
    made.with_panel(
        lines(
            "Dead letters",
            "Events that could not be processed, by stage and reason; empty while there has been none. "
            "groundwatch admin dead list says why, groundwatch admin dead retry sends them again.",
            [
                Query(
                    increase("groundwatch_dead_letters_total", STAGE, "stage, reason", R)
                    + f" and sum by (stage, reason) (groundwatch_dead_letters_total{{{STAGE}}}) > 0",
                    "{{stage}}: {{reason}}",
                )
            ],
            width=8,
            decimals=0,
        )
    )
    made.with_panel(
        lines(
            "Refused at the gateway",
            "Responses that were not recorded, a second: backlog and unavailable are ours, the others the "
            "sender's.",
            [Query(rate("groundwatch_refused_responses_total", "", "reason"), "{{reason}}")],
            unit="reqps",
            width=8,
        )
    )


def _budgets(made: dashboard.Dashboard) -> None:
    by = "budget, resource"
    made.with_row(dashboard.Row("Budgets"))
    made.with_panel(
        lines(
            "Used of each budget",
            "Share of what this minute or day allows. At 1 what comes is recorded and not judged.",
            [
                Query(
                    f"max by ({by}) (groundwatch_budget_used) "
                    f"/ (max by ({by}) (groundwatch_budget_limit) > 0)",
                    "{{budget}} {{resource}}",
                )
            ],
            unit="percentunit",
            top=1,
        )
    )
    made.with_panel(
        lines(
            "Declined over budget",
            "Responses a second that were recorded and not judged, by protocol each. They are drawn so that "
            "rates stay right.",
            [
                Query(
                    rate("groundwatch_budget_declined_total", "", "budget, stratum"), "{{budget}} {{stratum}}"
                )
            ],
            unit="ops",
            stacked=True,
        )
    )


def _archive(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("Archive"))
    made.with_panel(
        figure(
            "Ledger",
            "Responses and outcomes unaccounted for in the last audit: 0 while the books balance. From "
            "groundwatch audit --every.",
            "max(groundwatch_audit_unaccounted)",
            decimals=0,
            red_from=1,
            width=4,
            height=8,
        )
    )
    made.with_panel(
        lines(
            "Not archived yet",
            "Events in each stream that the archive has not come to. Over a day of them, it is away or "
            "cannot write.",
            [Query("max by (stream) (groundwatch_archive_lag)", "{{stream}}")],
            width=7,
            decimals=0,
        )
    )
    made.with_panel(
        lines(
            "Writes that failed",
            "Attempts to write in the window before each point, and rows written; a failed one is tried "
            "again, nothing is lost yet. The archive's log says why.",
            [
                Query(f"sum(increase(groundwatch_archive_failures_total[{R}])) or vector(0)", "failed"),
                Query(f"sum(increase(groundwatch_archive_rows_total[{R}]))", "rows written"),
            ],
            width=6,
            decimals=0,
        )
    )
    made.with_panel(
        lines(
            "Size of the archive",
            "Bytes of its files.",
            [Query("max by (table) (groundwatch_archive_bytes)", "{{table}}")],
            unit="bytes",
            width=7,
        )
    )


def _stores(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("NATS and stores"))
    made.with_panel(
        figure(
            "Without NATS",
            "Processes that are scraped and not connected to NATS.",
            "count(groundwatch_nats_connected == 0) or vector(0)",
            decimals=0,
            red_from=1,
        )
    )
    made.with_panel(
        figure(
            "Servers away",
            "NATS servers whose monitoring port does not answer any gateway; empty without nats.monitor_url.",
            "count(max by (cluster, namespace, server) (groundwatch_nats_monitor_up) == 0) "
            "or 0 * max(groundwatch_nats_monitor_up)",
            decimals=0,
            red_from=1,
        )
    )
    made.with_panel(
        figure(
            "JetStream off",
            "NATS servers that answer without JetStream: they store nothing until they are restarted.",
            "count(max by (cluster, namespace, server) (groundwatch_nats_jetstream_up) == 0) "
            "or 0 * max(groundwatch_nats_jetstream_up)",
            decimals=0,
            red_from=1,
        )
    )
    made.with_panel(
        figure(
            "Without a leader",
            "Streams that nothing is stored in, since more than half of their servers are away.",
            "max(groundwatch_nats_leaderless_streams)",
            decimals=0,
            red_from=1,
        )
    )
    made.with_panel(
        figure(
            "Copies behind",
            "Copies of streams that are offline or not up to date.",
            "sum(max by (cluster, namespace, server) (groundwatch_nats_replicas_behind))",
            decimals=0,
            red_from=1,
        )
    )
    made.with_panel(
        figure(
            "Next certificate ends in",
            "Of those that processes have loaded; empty without any. Renew it, and restart who loaded it.",
            "min(groundwatch_certificate_end_time_seconds) - time()",
            unit="s",
        )
    )
    made.with_panel(
        lines(
            "Stored",
            "Share of what a server may store. At 1 it takes nothing more, and gateways answer 503.",
            [
                Query(
                    "max by (server, store) (groundwatch_nats_stored_bytes) "
                    "/ (max by (server, store) (groundwatch_nats_store_limit_bytes) > 0)",
                    "{{server}} {{store}}",
                )
            ],
            unit="percentunit",
            top=1,
        )
    )
    made.with_panel(
        lines(
            "Memory",
            "Resident memory of NATS servers, and their limits where they have one (GOMEMLIMIT). Above it a "
            "server is about to be killed.",
            [
                Query("max by (server) (groundwatch_nats_memory_bytes)", "{{server}}"),
                Query("max by (server) (groundwatch_nats_memory_limit_bytes)", "{{server}}: limit"),
            ],
            unit="bytes",
        )
    )
    made.with_panel(
        lines(
            "Ready",
            "Processes of each service that can do their work.",
            [Query("sum by (service) (groundwatch_ready)", "{{service}}")],
            decimals=0,
        )
    )
    made.with_panel(
        lines(
            "Clients cut off",
            "Connections that NATS closed since their clients read too slowly, in the window before a point.",
            [
                Query(
                    f"max by (server) (increase(groundwatch_nats_slow_consumers_total[{R}]))",
                    "{{server}}",
                )
            ],
            decimals=0,
        )
    )


def _processes(made: dashboard.Dashboard) -> None:
    made.with_row(dashboard.Row("Processes"))
    made.with_panel(
        lines(
            "CPU",
            "Cores that each process uses.",
            [Query(f"rate(process_cpu_seconds_total[{R}]) and on (instance) {OURS}", "{{instance}}")],
            unit="cores",
            width=8,
            decimals=2,
        )
    )
    made.with_panel(
        lines(
            "Memory",
            "Resident memory of each process.",
            [Query(f"process_resident_memory_bytes and on (instance) {OURS}", "{{instance}}")],
            unit="bytes",
            width=8,
        )
    )
    made.with_panel(
        lines(
            "Images",
            "Images at the gateway, a second: new ones stored, known ones, refused ones.",
            [Query(f"sum by (result) (rate(groundwatch_images_total[{R}]))", "{{result}}")],
            unit="ops",
            width=8,
        )
    )
