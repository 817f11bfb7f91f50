{{/*
Stream and consumer of each stage, as services/groundwatch/topology declares them: a test reads both. The
second consumer of each stage is `<stage>-retry` on GW_RETRY.
*/}}
{{- define "groundwatch.streams" -}}
extraction: GW_RESPONSES
captioning: GW_ASKED
generation: GW_ASKED
matching: GW_EXTRACTED
verification: GW_EXTRACTED
scoring: GW_JUDGED
{{- end }}

{{/* How many streams there are of each kind of event. */}}
{{- define "groundwatch.partitions" -}}
{{- (.Values.settings.nats | default dict).partitions | default 1 | int -}}
{{- end }}

{{/* A stage's consumers, one for each partition, as JSON. Takes (dict "root" $ "stage" "…"). */}}
{{- define "groundwatch.consumersOf" -}}
{{- $stream := get (include "groundwatch.streams" .root | fromYaml) .stage -}}
{{- $found := list (dict "stream" $stream "name" .stage) -}}
{{- range $partition := untilStep 1 (include "groundwatch.partitions" .root | int) 1 -}}
{{- $found = append $found (dict "stream" (printf "%s_%d" $stream $partition) "name" (printf "%s-p%d" $.stage $partition)) -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{/* The same as the other terms of a sum. */}}
{{- define "groundwatch.otherConsumers" -}}
{{- range include "groundwatch.consumersOf" . | fromJsonArray }} + {{ .name | replace "-" "_" }}{{ end -}}
{{- end }}

{{/* A stage's autoscaling with the defaults, as JSON. Takes (dict "root" $ "stage" "…"). */}}
{{- define "groundwatch.autoscaling" -}}
{{- $own := (get .root.Values.stages .stage).autoscaling | default dict -}}
{{- /* `merge` would take an own 0 for none. */ -}}
{{- toJson (mergeOverwrite (deepCopy .root.Values.autoscaling) (deepCopy $own)) -}}
{{- end }}

{{/* "true" when KEDA decides how many replicas the stage has. */}}
{{- define "groundwatch.scaled" -}}
{{- $own := (get .root.Values.stages .stage).autoscaling | default dict -}}
{{- if and .root.Values.autoscaling.enabled (ne (toString $own.enabled) "false") }}true{{ end -}}
{{- end }}

{{/* How many replicas a stage, or the replay service, can have. Takes (dict "root" $ "stage" "…"). */}}
{{- define "groundwatch.mostReplicas" -}}
{{- $values := .root.Values -}}
{{- if eq .stage "replay" -}}
{{- ternary $values.replay.autoscaling.maxReplicas $values.replay.replicas $values.replay.autoscaling.enabled | int -}}
{{- else if eq .stage "annotation" -}}
{{- $values.annotation.replicas | int -}}
{{- else if include "groundwatch.scaled" . -}}
{{- (include "groundwatch.autoscaling" . | fromJson).maxReplicas | int -}}
{{- else -}}
{{- (get $values.stages .stage).replicas | default $values.stageDefaults.replicas | int -}}
{{- end -}}
{{- end }}

{{/* "true" when KEDA reads NATS' monitoring port. */}}
{{- define "groundwatch.kedaReadsNats" -}}
{{- if and (or .Values.autoscaling.enabled (and .Values.triton.enabled .Values.triton.autoscaling.enabled)) (include "groundwatch.natsMonitoring" .) }}true{{ end -}}
{{- end }}

{{/* Events for each replica, waiting and in hand: docs/sizing.md has the formula. */}}
{{- define "groundwatch.lagThreshold" -}}
{{- $scaling := include "groundwatch.autoscaling" . | fromJson -}}
{{- $derived := mulf $scaling.targetDelaySeconds (get .root.Values.stages .stage).eventsPerSecond $scaling.headroom | floor | int64 -}}
{{- $scaling.lagThreshold | default (max 1 $derived) | int64 -}}
{{- end }}

{{/* How KEDA says to Prometheus who it is. Takes `authentication`. */}}
{{- define "groundwatch.prometheusModes" -}}
{{- with . }}{{ if .name }}authModes: {{ .modes | quote }}{{ end }}{{ end -}}
{{- end }}

{{- define "groundwatch.prometheusAuthentication" -}}
{{- with . }}{{ if .name }}authenticationRef: {name: {{ .name | quote }}, kind: {{ .kind }}}{{ end }}{{ end -}}
{{- end }}
