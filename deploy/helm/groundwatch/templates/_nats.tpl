{{/* nats-server's configuration. Server names are pods' names, and none are advertised, so that KEDA finds
the leader of a consumer at `<server name>.<headless name>:8222`. */}}
{{- define "groundwatch.natsConfig" -}}
{{- $fullname := include "groundwatch.fullname" . -}}
{{- $headless := include "groundwatch.natsHeadless" . -}}
server_name: $POD_NAME
listen: "0.0.0.0:4222"
http: "0.0.0.0:8222"
pid_file: "/tmp/nats.pid"
max_payload: {{ int64 .Values.nats.maxPayload }}
lame_duck_grace_period: "5s"
lame_duck_duration: "30s"
jetstream {
  store_dir: "/data"
  sync_interval: {{ ternary "always" (toJson .Values.nats.sync) (eq .Values.nats.sync "always") }}
}
{{- if .Values.nats.tls.secret }}
tls {
  cert_file: "/etc/nats-tls/tls.crt"
  key_file: "/etc/nats-tls/tls.key"
  ca_file: "/etc/nats-tls/ca.crt"
}
{{- end }}
{{- if gt (int .Values.nats.replicas) 1 }}
cluster {
  name: {{ toJson $fullname }}
  listen: "0.0.0.0:6222"
  no_advertise: true
  {{- if .Values.nats.tls.secret }}
  tls {
    cert_file: "/etc/nats-tls/tls.crt"
    key_file: "/etc/nats-tls/tls.key"
    ca_file: "/etc/nats-tls/ca.crt"
    verify: true
  }
  {{- end }}
  routes: [
    {{- range until (int .Values.nats.replicas) }}
    "nats://{{ $fullname }}-nats-{{ . }}.{{ $headless }}:6222"
    {{- end }}
  ]
}
{{- end }}
{{- if .Values.nats.auth.serverConfigSecret }}
include "./auth/auth.conf"
{{- end }}
{{- end }}
