"""OpenTelemetry's protocol at the gateway: spans and log records of calls of models become responses."""
