{{/* A value as TOML. JSON's strings are TOML's basic strings. */}}
{{- define "groundwatch.toml.value" -}}
{{- if kindIs "map" . -}}
{ {{- $first := true }}{{ range $key, $value := . }}{{ if not (kindIs "invalid" $value) }}{{ if not $first }},{{ end }} {{ toJson $key }} = {{ include "groundwatch.toml.value" $value }}{{ $first = false }}{{ end }}{{ end }} }
{{- else if kindIs "slice" . -}}
[{{ range $index, $value := . }}{{ if $index }}, {{ end }}{{ include "groundwatch.toml.value" $value }}{{ end }}]
{{- else if kindIs "float64" . -}}
{{ if eq (floor .) . }}{{ int64 . }}{{ else }}{{ toJson . }}{{ end }}
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end }}

{{/* Sections by dotted keys, one setting a line. Takes (dict "path" "" "values" <map>). */}}
{{- define "groundwatch.toml" -}}
{{- $path := .path -}}
{{- range $key, $value := .values -}}
{{- $name := ternary $key (toJson $key) (regexMatch "^[A-Za-z0-9_-]+$" $key) -}}
{{- if and (kindIs "map" $value) $value -}}
{{ include "groundwatch.toml" (dict "path" (printf "%s%s." $path $name) "values" $value) }}
{{- else if not (kindIs "invalid" $value) -}}
{{ $path }}{{ $name }} = {{ include "groundwatch.toml.value" $value }}
{{ end -}}
{{- end -}}
{{- end }}

{{/* The names under which the gateway is reached: its Service's, those of its Ingress and HTTPRoute, and those of the values. */}}
{{- define "groundwatch.gatewayHosts" -}}
{{- $name := printf "%s-gateway" (include "groundwatch.fullname" .) -}}
{{- $within := printf "%s.%s" $name .Release.Namespace -}}
{{- $hosts := list $name $within (printf "%s.svc" $within) (printf "%s.svc.cluster.local" $within) -}}
{{- with .Values.gateway.ingress }}{{ if .enabled }}{{ range prepend .extraHosts . }}{{ with .host }}{{ $hosts = append $hosts . }}{{ end }}{{ end }}{{ end }}{{ end -}}
{{- with .Values.gateway.httpRoute }}{{ if .enabled }}{{ $hosts = concat $hosts .hostnames }}{{ end }}{{ end -}}
{{- toJson (concat $hosts ((.Values.settings.gateway | default dict).hosts | default list) | uniq) -}}
{{- end }}

{{/* Where browsers reach the gateway: as the values say, or where its Ingress is. */}}
{{- define "groundwatch.loginUrl" -}}
{{- with .Values.gateway -}}
{{- if .login.url }}{{ .login.url }}{{ else if and .ingress.enabled .ingress.host }}{{ ternary "https" "http" (not (empty .ingress.tlsSecret)) }}://{{ .ingress.host }}{{ end -}}
{{- end -}}
{{- end }}

{{/* The judges that a stage's settings name, for all protocols and for single ones, alone or in a cascade, as a JSON list
of {key, engine, llm}: one without `llm` asks the stage's own. Takes its settings. */}}
{{- define "groundwatch.judges" -}}
{{- $stage := . -}}
{{- $found := list (dict "engine" (.engine | default "")) -}}
{{- range $number, $step := .cascade -}}
{{- $found = append $found (dict "key" (printf "cascade[%d].llm" $number) "engine" $step.engine "llm" $step.llm) -}}
{{- end -}}
{{- range $name, $one := .protocols | default dict -}}
{{- $found = append $found (dict "key" (printf "protocols.%s.llm" $name) "engine" ($one.engine | default $stage.engine | default "") "llm" $one.llm) -}}
{{- range $number, $step := $one.cascade -}}
{{- $key := ternary (printf "protocols.%s.cascade[%d].llm" $name $number) (printf "protocols.%s.llm" $name) (not (empty $step.llm)) -}}
{{- $found = append $found (dict "key" $key "engine" $step.engine "llm" ($step.llm | default $one.llm)) -}}
{{- end -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{/* The names of their engines, as a JSON list. */}}
{{- define "groundwatch.engines" -}}
{{- $found := list -}}
{{- range include "groundwatch.judges" . | fromJsonArray }}{{ $found = append $found .engine }}{{ end -}}
{{- toJson $found -}}
{{- end }}

{{/* "true" when an engine of a stage asks the stage's own `llm`. Takes its settings. */}}
{{- define "groundwatch.asksLlm" -}}
{{- $found := false -}}
{{- range include "groundwatch.judges" . | fromJsonArray -}}
{{- if and (not .llm) (has .engine (list "llm" "visual")) }}{{ $found = true }}{{ end -}}
{{- end -}}
{{- if $found }}true{{ end -}}
{{- end }}

{{/* The settings of the services as JSON: those of the values, with what the chart decides. */}}
{{- define "groundwatch.settings" -}}
{{- $settings := deepCopy .Values.settings -}}
{{- range splitList " " "extraction verification matching generation" -}}
{{- $stage := get $settings . | default dict -}}
{{- if and $.Values.llm.baseUrl (include "groundwatch.asksLlm" $stage) (not $stage.llm) -}}
{{- $llm := dict "base_url" $.Values.llm.baseUrl "model" $.Values.llm.model "api_key_env" "LLM_API_KEY" -}}
{{- $_ := set $settings . (merge (dict "llm" $llm) $stage) -}}
{{- end -}}
{{- end -}}
{{- range splitList " " (include "groundwatch.enabledStages" .) -}}
{{- $most := dict "replicas" (include "groundwatch.mostReplicas" (dict "root" $ "stage" .) | int) -}}
{{- $_ := set $settings . (merge $most (get $settings . | default dict)) -}}
{{- end -}}
{{- $nats := dict "url" (include "groundwatch.natsUrl" .) "replicas" (include "groundwatch.streamReplicas" . | int) -}}
{{- if .Values.nats.enabled -}}
{{- $servers := list -}}
{{- range until (int .Values.nats.replicas) }}{{ $servers = append $servers (printf "http://%s-nats-%d.%s:8222" (include "groundwatch.fullname" $) . (include "groundwatch.natsHeadless" $)) }}{{ end -}}
{{- $_ := set $nats "monitor_url" (join "," $servers) -}}
{{- end -}}
{{- $_ := set $settings "nats" (merge $nats ($settings.nats | default dict)) -}}
{{- $gateway := dict "host" "0.0.0.0" "port" 8787 "drain_delay" .Values.gateway.drainSeconds "hosts" (include "groundwatch.gatewayHosts" . | fromJsonArray) "open" (not (include "groundwatch.asksCallers" .)) -}}
{{- if .Values.gateway.tokensSecret }}{{ $_ := set $gateway "tokens_file" "/run/secrets/groundwatch/gateway/tokens" }}{{ end -}}
{{- $login := dict "url" (include "groundwatch.loginUrl" .) -}}
{{- if .Values.gateway.login.cookieSecret }}{{ $_ := set $login "cookie_secret_file" "/run/secrets/groundwatch/login/cookie" }}{{ end -}}
{{- if .Values.gateway.login.clientSecret }}{{ $_ := set $login "oidc" (dict "client_secret_file" "/run/secrets/groundwatch/oidc/client") }}{{ end -}}
{{- $_ := set $gateway "login" $login -}}
{{- /* A gateway has neither the judges' keys nor the way to them: replays are for the service of that name. */ -}}
{{- $_ := set $gateway "replays" 0 -}}
{{- if include "groundwatch.beginsReplays" . }}{{ $_ := set $gateway "replay_nkey_seed_file" "/run/secrets/groundwatch/replay/seed" }}{{ end -}}
{{- if .Values.gateway.grpc.enabled -}}
{{- $_ := set $gateway "grpc_port" 8788 -}}
{{- if .Values.gateway.grpc.tlsSecret }}{{ $_ := set $gateway "grpc" (dict "tls_cert" "/run/secrets/groundwatch/grpc/tls.crt" "tls_key" "/run/secrets/groundwatch/grpc/tls.key") }}{{ end -}}
{{- end -}}
{{- $_ := set $settings "gateway" (merge $gateway ($settings.gateway | default dict)) -}}
{{- $telemetry := dict "host" "0.0.0.0" "port" .Values.telemetry.port -}}
{{- $_ := set $settings "telemetry" (merge $telemetry ($settings.telemetry | default dict) (dict "log_format" "json")) -}}
{{- if .Values.triton.enabled -}}
{{- $server := ternary (printf "triton-%s" (keys .Values.triton.servers | sortAlpha | first)) "triton" (not (empty .Values.triton.servers)) -}}
{{- $triton := dict "url" (printf "%s-%s.%s.svc:8001" (include "groundwatch.fullname" .) $server .Release.Namespace) -}}
{{- $_ := set $settings "triton" (merge $triton ($settings.triton | default dict)) -}}
{{- end -}}
{{- if include "groundwatch.archiveOnVolume" . -}}
{{- $_ := set $settings "archive" (merge (dict "url" "/var/lib/groundwatch/archive") ($settings.archive | default dict) (dict "hot_days" 30)) -}}
{{- end -}}
{{- toJson $settings -}}
{{- end }}

{{/* "true" when the archive is a folder on a volume of the chart, and not in an object store. */}}
{{- define "groundwatch.archiveOnVolume" -}}
{{- if and .Values.archive.enabled (not (.Values.settings.archive | default dict).url) }}true{{ end -}}
{{- end }}

{{- define "groundwatch.settingsToml" -}}
{{- include "groundwatch.toml" (dict "path" "" "values" (include "groundwatch.settings" . | fromJson)) -}}
{{- end }}

{{/* Whom the settings of a stage name, as JSON; of the annotation service the judge of second opinions: one of
`judges`, over the settings of verification, or an engine. Takes (dict "root" $ "stage" "…"). */}}
{{- define "groundwatch.judgingSection" -}}
{{- $settings := include "groundwatch.settings" .root | fromJson -}}
{{- $section := get $settings .stage | default dict -}}
{{- if eq .stage "annotation" -}}
{{- $section = dict -}}
{{- with ($settings.second_opinion | default dict).judge -}}
{{- $first := omit ($settings.verification | default dict) "protocols" -}}
{{- $named := (get ($settings.judges | default dict) .) | default dict -}}
{{- if hasKey ($settings.judges | default dict) . -}}
{{- $section = merge (deepCopy ($named.verification | default dict)) $first -}}
{{- else -}}
{{- $section = merge (dict "engine" .) $first -}}
{{- end -}}
{{- if not (eq ($section.engine | default "") "cascade") }}{{ $section = omit $section "cascade" }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toJson $section -}}
{{- end }}

{{/* The model endpoints that a stage asks, as a JSON list of {key, base_url, api_key_env,
concurrency: 16 by default, as a test compares}. Takes (dict "root" $ "stage" "…"). */}}
{{- define "groundwatch.endpoints" -}}
{{- $settings := include "groundwatch.settings" .root | fromJson -}}
{{- $section := include "groundwatch.judgingSection" . | fromJson -}}
{{- $found := list -}}
{{- if eq .stage "replay" -}}
{{- range $stage := include "groundwatch.judgingStages" . | splitList " " -}}
{{- $found = concat $found (include "groundwatch.endpoints" (dict "root" $.root "stage" $stage) | fromJsonArray) -}}
{{- end -}}
{{- end -}}
{{- if and $section.llm (or (include "groundwatch.asksLlm" $section) (eq ($section.engine | default "") "openai")) -}}
{{- $found = append $found (dict "key" (printf "settings.%s.llm.base_url" .stage) "base_url" $section.llm.base_url "api_key_env" ($section.llm.api_key_env | default "OPENAI_API_KEY") "concurrency" ($section.llm.concurrency | default 16)) -}}
{{- end -}}
{{- range include "groundwatch.judges" $section | fromJsonArray -}}
{{- if and .llm (has .engine (list "llm" "visual")) -}}
{{- $found = append $found (dict "key" (printf "settings.%s.%s.base_url" $.stage .key) "base_url" .llm.base_url "api_key_env" (.llm.api_key_env | default "OPENAI_API_KEY") "concurrency" (.llm.concurrency | default 16)) -}}
{{- end -}}
{{- end -}}
{{- if eq .stage "captioning" -}}
{{- range $name, $model := $section.models | default dict -}}
{{- $found = append $found (dict "key" (printf "settings.captioning.models.%s.base_url" $name) "base_url" $model.base_url "api_key_env" ($model.api_key_env | default "OPENAI_API_KEY") "concurrency" ($model.concurrency | default 16)) -}}
{{- end -}}
{{- end -}}
{{- $images := $settings.images | default dict -}}
{{- if and (eq .stage "generation") $images.encoder_url -}}
{{- $found = append $found (dict "key" "settings.images.encoder_url" "base_url" $images.encoder_url "api_key_env" ($images.encoder_key_env | default "OPENAI_API_KEY")) -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{/* The stages whose judges a replay asks. */}}
{{- define "groundwatch.judgingStages" -}}extraction matching verification{{- end }}

{{/* "true" when a stage, or the replay service, asks Triton. */}}
{{- define "groundwatch.usesTriton" -}}
{{- if eq .stage "replay" -}}
{{- $found := "" -}}
{{- range $stage := include "groundwatch.judgingStages" . | splitList " " -}}
{{- $found = include "groundwatch.usesTriton" (dict "root" $.root "stage" $stage) | default $found -}}
{{- end -}}
{{- $found -}}
{{- else -}}
{{- $settings := include "groundwatch.settings" .root | fromJson -}}
{{- $section := include "groundwatch.judgingSection" . | fromJson -}}
{{- $engine := $section.engine | default "" -}}
{{- $encodes := and (eq .stage "generation") (eq $engine "openai") (not ($settings.images | default dict).encoder_url) -}}
{{- $engines := include "groundwatch.engines" $section | fromJsonArray -}}
{{- if or (has "triton" $engines) (has "detector" $engines) $encodes }}true{{ end -}}
{{- end -}}
{{- end }}

{{/* "true" where gateways have a Secret with the seed of the user that may write replays down. */}}
{{- define "groundwatch.beginsReplays" -}}
{{- with .Values.nats.auth }}{{ if and .enabled (eq .method "nkey") .secrets.replay }}true{{ end }}{{ end -}}
{{- end }}
