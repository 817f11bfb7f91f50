{{/* Triton's servers by component, each with its values over those of all, as JSON. */}}
{{- define "groundwatch.tritonServers" -}}
{{- $found := dict -}}
{{- $all := omit .Values.triton "servers" "enabled" -}}
{{- if .Values.triton.enabled -}}
{{- range $name, $own := .Values.triton.servers -}}
{{- $_ := set $found (printf "triton-%s" $name) (mergeOverwrite (deepCopy $all) (deepCopy $own)) -}}
{{- end -}}
{{- if not $found }}{{ $_ := set $found "triton" (merge (dict "stages" (include "groundwatch.tritonClients" . | fromJsonArray)) $all) }}{{ end -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{/* The stages that ask Triton, and the replay and annotation services if they do, as a JSON list. */}}
{{- define "groundwatch.tritonClients" -}}
{{- $found := list -}}
{{- range splitList " " (include "groundwatch.enabledStages" .) | concat (ternary (list "replay") list .Values.replay.enabled) (ternary (list "annotation") list .Values.annotation.enabled) -}}
{{- if include "groundwatch.usesTriton" (dict "root" $ "stage" .) }}{{ $found = append $found . }}{{ end -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{/* The clients of one server, as a JSON list: its stages, the replay service where it has a stage that judges, and
the annotation service, whose second judge verifies, where it has verification.
Takes (dict "root" $ "server" <its values>). */}}
{{- define "groundwatch.clientsOf" -}}
{{- $found := list -}}
{{- $judges := splitList " " (include "groundwatch.judgingStages" .root) -}}
{{- range $client := include "groundwatch.tritonClients" .root | fromJsonArray -}}
{{- $here := has $client $.server.stages -}}
{{- if eq $client "replay" }}{{ range $judges }}{{ if has . $.server.stages }}{{ $here = true }}{{ end }}{{ end }}{{ end -}}
{{- if and (eq $client "annotation") (has "verification" $.server.stages) }}{{ $here = true }}{{ end -}}
{{- if $here }}{{ $found = append $found $client }}{{ end -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{/* The component that is asked by a stage or the replay service, or nothing. Takes (dict "root" $ "stage" "…"). */}}
{{- define "groundwatch.tritonComponentOf" -}}
{{- range $component, $server := include "groundwatch.tritonServers" .root | fromJson -}}
{{- if has $.stage (include "groundwatch.clientsOf" (dict "root" $.root "server" $server) | fromJsonArray) }}{{ $component }}{{ end -}}
{{- end -}}
{{- end }}

{{/* The Service of a client's own server, where there are several. Takes (dict "root" $ "service" "…"). */}}
{{- define "groundwatch.tritonServerOf" -}}
{{- if and .root.Values.triton.enabled .root.Values.triton.servers -}}
{{- with include "groundwatch.tritonComponentOf" (dict "root" .root "stage" .service) }}{{ include "groundwatch.fullname" $.root }}-{{ . }}{{ end -}}
{{- end -}}
{{- end }}

{{/* How many replicas a server can have. Takes its values. */}}
{{- define "groundwatch.mostServers" -}}
{{- ternary .autoscaling.maxReplicas .replicas .autoscaling.enabled | int -}}
{{- end }}

{{/* Requests at once that one process has at Triton: `triton.concurrency`, whose default a test compares. */}}
{{- define "groundwatch.tritonConcurrency" -}}
{{- (.Values.settings.triton | default dict).concurrency | default 32 | int -}}
{{- end }}

{{/* Backlog of a stage for each replica of its server: what the replicas of the stage would have that one replica of
the server can take; where its capacity is unknown so much that it only wakes the server.
Takes (dict "root" $ "stage" "…" "server" <its values>). */}}
{{- define "groundwatch.serverLagThreshold" -}}
{{- if .server.capacity -}}
{{- $replicas := div (int .server.capacity) (include "groundwatch.tritonConcurrency" .root | int) | max 1 -}}
{{- mul $replicas (include "groundwatch.lagThreshold" . | int64) -}}
{{- else }}1000000000{{ end -}}
{{- end }}
