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
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
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

{{/* The values of a component: a stage's, a Triton server's or its own, as JSON. Takes (dict "root" $ "component" "…"). */}}
{{- define "groundwatch.at" -}}
{{- $values := .root.Values -}}
{{- $triton := include "groundwatch.tritonServers" .root | fromJson -}}
{{- if hasKey $values.stages .component }}{{ get $values.stages .component | toJson -}}
{{- else if hasKey $triton .component }}{{ get $triton .component | toJson -}}
{{- else }}{{ get $values .component | default dict | toJson }}{{ end -}}
{{- end }}

{{/* What runs and speaks to NATS beside the Jobs, as a JSON list of components. */}}
{{- define "groundwatch.services" -}}
{{- $found := splitList " " (include "groundwatch.enabledStages" .) | concat (list "gateway") | compact -}}
{{- range list "archive" "outflow" "annotation" "auditor" "replay" "retention" "toolbox" -}}
{{- if (get $.Values .).enabled }}{{ $found = append $found . }}{{ end -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{/* All components that have pods, as a JSON list. */}}
{{- define "groundwatch.components" -}}
{{- $found := include "groundwatch.services" . | fromJsonArray -}}
{{- $found = concat $found (list "test") (include "groundwatch.tritonServers" . | fromJson | keys | sortAlpha) -}}
{{- if .Values.nats.enabled }}{{ $found = append $found "nats" }}{{ end -}}
{{- if .Values.provisioning.enabled }}{{ $found = append $found "provisioning" }}{{ end -}}
{{- toJson $found -}}
{{- end }}

{{/* The NATS user that a component is, where it has another name. */}}
{{- define "groundwatch.natsUser" -}}
{{- get (dict "auditor" "audit" "retention" "erase" "provisioning" "provision" "toolbox" "cli" "test" "cli") . | default . -}}
{{- end }}

{{/* A quantity in thousandths of its unit: 100m of a core is 100, 1Ki is 1024000. */}}
{{- define "groundwatch.amount" -}}
{{- $units := dict "" 1000.0 "m" 1.0 "k" 1e6 "M" 1e9 "G" 1e12 "T" 1e15 "Ki" 1024000.0 "Mi" 1048576000.0 "Gi" 1073741824000.0 "Ti" 1099511627776000.0 -}}
{{- $written := toString . -}}
{{- mulf (regexFind "^[0-9.]+" $written | float64) (get $units (regexFind "[A-Za-z]*$" $written)) -}}
{{- end }}

{{/* A quantity in whole bytes. */}}
{{- define "groundwatch.bytes" -}}
{{- divf (include "groundwatch.amount" . | float64) 1000 | int64 -}}
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
