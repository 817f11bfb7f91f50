{{- define "groundwatch.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* At most 40 characters: the longest suffix and a StatefulSet's hash must fit into 63. */}}
{{- define "groundwatch.fullname" -}}
{{- $name := include "groundwatch.name" . -}}
{{- $whole := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- .Values.fullnameOverride | default $whole | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* What a selector may hold: never changes between versions. Takes (dict "root" $ "component" "…"). */}}
{{- define "groundwatch.selector" -}}
app.kubernetes.io/name: {{ include "groundwatch.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "groundwatch.labels" -}}
{{ include "groundwatch.selector" . }}
app.kubernetes.io/part-of: groundwatch
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Takes (dict "root" $ "override" <map>): the services' image, with what a component overrides. */}}
{{- define "groundwatch.image" -}}
{{- $override := .override | default dict -}}
{{- $repository := $override.repository | default .root.Values.image.repository -}}
{{- $own := or $override.repository $override.tag $override.digest -}}
{{- $tag := $override.tag | default (ternary "" .root.Values.image.tag (not (empty $override.repository))) | default .root.Chart.AppVersion -}}
{{- $digest := ternary $override.digest .root.Values.image.digest (not (empty $own)) -}}
{{- $registry := $override.registry | default .root.Values.image.registry -}}
{{- with $registry }}{{ . }}/{{ end }}{{ $repository }}{{ with $digest }}@{{ . }}{{ else }}:{{ $tag }}{{ end }}
{{- end }}

{{- define "groundwatch.stages" -}}extraction captioning generation matching verification scoring{{- end }}

{{/* The stages that run, as a list by blanks. */}}
{{- define "groundwatch.enabledStages" -}}
{{- $found := list -}}
{{- range splitList " " (include "groundwatch.stages" .) -}}
{{- if (get $.Values.stages .).enabled }}{{ $found = append $found . }}{{ end -}}
{{- end -}}
{{- join " " $found -}}
{{- end }}

{{- define "groundwatch.natsHost" -}}
{{ include "groundwatch.fullname" . }}-nats.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "groundwatch.natsHeadless" -}}
{{ include "groundwatch.fullname" . }}-nats-headless.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "groundwatch.natsUrl" -}}
{{- if .Values.nats.enabled -}}
{{ ternary "tls" "nats" (not (empty .Values.nats.tls.secret)) }}://{{ include "groundwatch.natsHost" . }}:4222
{{- else -}}
{{ .Values.nats.url }}
{{- end -}}
{{- end }}

{{- define "groundwatch.streamReplicas" -}}
{{- if .Values.nats.streamReplicas -}}
{{ .Values.nats.streamReplicas }}
{{- else -}}
{{ ternary (min .Values.nats.replicas 3) 1 .Values.nats.enabled }}
{{- end -}}
{{- end }}

{{/* What KEDA reads. Through the headless name it finds each server by `<pod>.<endpoint>`, and so the leader. */}}
{{- define "groundwatch.natsMonitoring" -}}
{{- if .Values.nats.enabled -}}
{{ include "groundwatch.natsHeadless" . }}:8222
{{- else -}}
{{ .Values.nats.monitoring.endpoint }}
{{- end -}}
{{- end }}
