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
  max_file_store: {{ include "groundwatch.maxFileStore" . }}
  max_memory_store: {{ include "groundwatch.maxMemoryStore" . }}
  sync_interval: {{ ternary "always" (toJson .Values.nats.sync) (eq .Values.nats.sync "always") }}
  {{- if .Values.nats.jetstream.encryption.secret }}
  cipher: {{ .Values.nats.jetstream.encryption.cipher }}
  key: $JETSTREAM_KEY
  {{- end }}
}
{{- if .Values.nats.tls.secret }}
tls {
  cert_file: "/etc/nats-tls/tls.crt"
  key_file: "/etc/nats-tls/tls.key"
  ca_file: "/etc/nats-tls/ca.crt"
  {{- if .Values.nats.tls.verifyClients }}
  verify: true
  {{- end }}
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
{{- with .Values.nats.extraConfig }}
{{ . }}
{{- end }}
{{- end }}

{{/* Bytes that JetStream may take of the volume: the rest is for its indexes, and for the file system. */}}
{{- define "groundwatch.maxFileStore" -}}
{{- with .Values.nats -}}
{{- if .jetstream.maxFileStore }}{{ include "groundwatch.bytes" .jetstream.maxFileStore }}{{ else }}{{ mulf (include "groundwatch.bytes" .storage.size | float64) 0.85 | int64 }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "groundwatch.maxMemoryStore" -}}
{{- with .Values.nats -}}
{{- if .jetstream.maxMemoryStore }}{{ include "groundwatch.bytes" .jetstream.maxMemoryStore }}{{ else }}{{ mulf (include "groundwatch.bytes" .resources.limits.memory | float64) 0.1 | int64 }}{{ end -}}
{{- end -}}
{{- end }}

{{/* Seconds for which a server may read its store again before it counts as dead. */}}
{{- define "groundwatch.natsStartupSeconds" -}}
{{- with .Values.nats -}}
{{- divf (include "groundwatch.bytes" .storage.size | float64) (include "groundwatch.bytes" .rebuildRate | float64) | ceil | int64 | add 120 -}}
{{- end -}}
{{- end }}

{{/* "true" where files of the servers may change while they run. */}}
{{- define "groundwatch.natsReloads" -}}
{{- if or .Values.nats.tls.secret .Values.nats.auth.serverConfigSecret }}true{{ end -}}
{{- end }}
