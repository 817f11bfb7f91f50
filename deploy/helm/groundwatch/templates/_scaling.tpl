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

{{/* A stage's autoscaling with the defaults, as JSON. Takes (dict "root" $ "stage" "…"). */}}
{{- define "groundwatch.autoscaling" -}}
{{- $own := (get .root.Values.stages .stage).autoscaling | default dict -}}
{{- toJson (merge (deepCopy $own) (deepCopy .root.Values.autoscaling)) -}}
{{- end }}

{{/* "true" when KEDA decides how many replicas the stage has. */}}
{{- define "groundwatch.scaled" -}}
{{- $own := (get .root.Values.stages .stage).autoscaling | default dict -}}
{{- if and .root.Values.autoscaling.enabled (ne (toString $own.enabled) "false") }}true{{ end -}}
{{- end }}

{{/* Events for each replica, waiting and in hand: docs/sizing.md has the formula. */}}
{{- define "groundwatch.lagThreshold" -}}
{{- $scaling := include "groundwatch.autoscaling" . | fromJson -}}
{{- $derived := mulf $scaling.targetDelaySeconds (get .root.Values.stages .stage).eventsPerSecond $scaling.headroom | floor | int64 -}}
{{- $scaling.lagThreshold | default (max 1 $derived) | int64 -}}
{{- end }}
