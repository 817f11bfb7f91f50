{{/* What the schema of the values cannot say. Each sentence begins with the value that is wrong. */}}
{{- define "groundwatch.checks" -}}
{{- include "groundwatch.checkImages" . -}}
{{- include "groundwatch.checkResources" . -}}
{{- include "groundwatch.checkNats" . -}}
{{- include "groundwatch.checkLoad" . -}}
{{- include "groundwatch.checkRoutes" . -}}
{{- include "groundwatch.checkStages" . -}}
{{- include "groundwatch.checkModels" . -}}
{{- include "groundwatch.checkTriton" . -}}
{{- include "groundwatch.checkCapacity" . -}}
{{- with .Values.gateway.ingress -}}
{{- if and .enabled (not .host) }}{{ fail "gateway.ingress.host: name the host under which the gateway is reached" }}{{ end -}}
{{- if and (not .enabled) (or .host .tlsSecret) }}{{ fail "gateway.ingress.enabled: is false, but a host or tlsSecret is given; set it to true" }}{{ end -}}
{{- end -}}
{{- $oidc := ((.Values.settings.gateway | default dict).login | default dict).oidc -}}
{{- $gateways := ternary (.Values.gateway.autoscaling.maxReplicas | int) (.Values.gateway.replicas | int) .Values.gateway.autoscaling.enabled -}}
{{- if and $oidc (not (include "groundwatch.loginUrl" .)) }}{{ fail "gateway.login.url: say where browsers reach the gateway: the provider of settings.gateway.login.oidc sends them back there" }}{{ end -}}
{{- if and $oidc (gt $gateways 1) (not .Values.gateway.login.cookieSecret) }}{{ fail "gateway.login.cookieSecret: several gateways need one secret to know each other's sessions" }}{{ end -}}
{{- if and .Values.gateway.login.clientSecret (not $oidc) }}{{ fail "settings.gateway.login.oidc: name the provider, or leave gateway.login.clientSecret out" }}{{ end -}}
{{- with .Values.gateway.grpc -}}
{{- if and (not .enabled) (or .tlsSecret .ingress.enabled) }}{{ fail "gateway.grpc.enabled: is false, but its tlsSecret or ingress is given; set it to true" }}{{ end -}}
{{- if and .enabled (eq (int .port) (int $.Values.gateway.service.port)) }}{{ fail "gateway.grpc.port: is gateway.service.port too; choose another" }}{{ end -}}
{{- with .ingress -}}
{{- if and .enabled (not .host) }}{{ fail "gateway.grpc.ingress.host: name the host under which gRPC is reached" }}{{ end -}}
{{- if and (not .enabled) (or .host .tlsSecret) }}{{ fail "gateway.grpc.ingress.enabled: is false, but a host or tlsSecret is given; set it to true" }}{{ end -}}
{{- if and .enabled (eq .host ($.Values.gateway.ingress.host)) }}{{ fail "gateway.grpc.ingress.host: is gateway.ingress.host too, whose paths are HTTP's; give gRPC a host of its own" }}{{ end -}}
{{- end -}}
{{- end -}}
{{- include "groundwatch.checkAccess" . -}}
{{- with .Values.replay.autoscaling -}}
{{- if and .enabled (not $.Values.replay.enabled) }}{{ fail "replay.autoscaling.enabled: there is nothing to scale while replay.enabled=false" }}{{ end -}}
{{- if and .enabled (not .prometheusUrl) }}{{ fail "replay.autoscaling.prometheusUrl: name the Prometheus that scrapes the gateways" }}{{ end -}}
{{- end -}}
{{- if and .Values.settings.retention (not .Values.retention.enabled) }}{{ fail "retention.enabled: is false, but settings.retention is given, and nobody would keep to it; set it to true" }}{{ end -}}
{{- if has (int .Values.telemetry.port) (list 8787 8788) }}{{ fail (printf "telemetry.port: %d is the gateway's own port; choose another" (int .Values.telemetry.port)) }}{{ end -}}
{{- with .Values.monitoring -}}
{{- if and .prometheusRule.enabled (not ($.Files.Glob "files/*.rules.yaml")) }}{{ fail "monitoring.prometheusRule.enabled: this copy of the chart carries no rules (files/*.rules.yaml)" }}{{ end -}}
{{- if and .dashboards.enabled (not ($.Files.Glob "files/dashboards/*.json")) }}{{ fail "monitoring.dashboards.enabled: this copy of the chart carries no dashboards (files/dashboards/*.json)" }}{{ end -}}
{{- end -}}
{{- if and (.Values.settings.archive | default dict).url (not .Values.archive.enabled) }}{{ fail "archive.enabled: is false, but settings.archive.url is given; set it to true" }}{{ end -}}
{{- with include "groundwatch.archiveEndpoint" . -}}
{{- if and $.Values.archive.enabled $.Values.networkPolicy.enabled (include "groundwatch.inside" .) (not $.Values.networkPolicy.archiveEgress) }}{{ fail (printf "networkPolicy.archiveEgress: settings.archive.options.endpoint_url is %s, inside the cluster: say where its pods are (an egress rule with `to` and `ports`)" .) }}{{ end -}}
{{- end -}}
{{- $hot := float64 ((.Values.settings.archive | default dict).hot_days | default 30) -}}
{{- if and (include "groundwatch.archiveOnVolume" .) (lt $hot 30.0) }}{{ fail (printf "settings.archive.url: name an object store, such as s3://bucket/path, or set settings.archive.hot_days to 30: it is %v, and what is older would be on the archive's volume alone, which gateways and replays have not" $hot) }}{{ end -}}
{{- $receivers := (.Values.settings.outflow | default dict).receivers -}}
{{- if and $receivers (not .Values.outflow.enabled) }}{{ fail "outflow.enabled: is false, but settings.outflow.receivers are given, and nobody would tell them; set it to true" }}{{ end -}}
{{- if and .Values.outflow.enabled (not $receivers) }}{{ fail "settings.outflow.receivers: name a receiver, or set outflow.enabled=false" }}{{ end -}}
{{- $retry := .Values.settings.retry | default dict -}}
{{- if lt (float64 ($retry.max_delay | default 300)) (float64 ($retry.first_delay | default 1)) }}{{ fail "settings.retry.max_delay: must not be below settings.retry.first_delay" }}{{ end -}}
{{- end }}

{{/* Components with an environment of their own, by where their values stand, as JSON. */}}
{{- define "groundwatch.places" -}}
{{- $places := pick .Values "gateway" "archive" "outflow" "annotation" "auditor" "replay" "retention" "toolbox" "provisioning" "test" "triton" -}}
{{- range $stage, $at := .Values.stages }}{{ $_ := set $places (printf "stages.%s" $stage) $at }}{{ end -}}
{{- range $name, $at := .Values.triton.servers }}{{ $_ := set $places (printf "triton.servers.%s" $name) $at }}{{ end -}}
{{- toJson $places -}}
{{- end }}

{{- define "groundwatch.checkImages" -}}
{{- $places := include "groundwatch.places" . | fromJson -}}
{{- $images := dict "image" .Values.image "nats.image" .Values.nats.image -}}
{{- range $place, $at := $places }}{{ $_ := set $images (printf "%s.image" $place) $at.image }}{{ end -}}
{{- range $key, $image := $images -}}
{{- if and $image (eq (toString $image.tag) "latest") }}{{ fail (printf "%s.tag: `latest` is another image tomorrow; name a version, or a digest" $key) }}{{ end -}}
{{- end -}}
{{- range $place, $at := merge $places (dict "" (dict "env" .Values.extraEnv)) -}}
{{- range $at.env -}}
{{- $place := ternary (printf "%s.env" $place) "extraEnv" (not (empty $place)) -}}
{{- if hasPrefix "GROUNDWATCH_" .name }}{{ fail (printf "%s: %s is a setting; put it under `settings`" $place .name) }}{{ end -}}
{{- if and .value (regexMatch "(?i)(key|token|secret|password|seed)$" .name) }}{{ fail (printf "%s: %s looks like a secret; give it by valueFrom.secretKeyRef, or under apiKeys" $place .name) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "groundwatch.checkNats" -}}
{{- with .Values.nats -}}
{{- if and .enabled .url }}{{ fail "nats.url: names an existing NATS, but nats.enabled=true brings one; set nats.enabled=false, or leave the url out" }}{{ end -}}
{{- if not .enabled -}}
{{- if not .url }}{{ fail "nats.url: is needed with nats.enabled=false, such as nats://nats.nats.svc:4222" }}{{ end -}}
{{- range splitList "," .url -}}
{{- if not (regexMatch "^(nats|tls)://[^/@,]+(, *(nats|tls)://[^/@,]+)*$" (trim .)) }}{{ fail (printf "nats.url: %s is no address such as nats://host:4222 or tls://host:4222, without user and password (those come by nats.auth)" (regexReplaceAll "//.*@" . "//…@")) }}{{ end -}}
{{- end -}}
{{- if and $.Values.autoscaling.enabled (not .monitoring.endpoint) }}{{ fail "nats.monitoring.endpoint: KEDA needs the monitoring port of your NATS (host:8222) with autoscaling.enabled=true" }}{{ end -}}
{{- if .tls.verifyClients }}{{ fail "nats.tls.verifyClients: is for the chart's own NATS; yours decides by itself (nats.auth.certificates names what the services show it)" }}{{ end -}}
{{- if .tls.secret }}{{ fail "nats.tls.secret: is for the chart's own NATS; an existing one has its certificate already (trust it with nats.auth.caSecret)" }}{{ end -}}
{{- if .auth.serverConfigSecret }}{{ fail "nats.auth.serverConfigSecret: is for the chart's own NATS; put the users into the configuration of yours" }}{{ end -}}
{{- else -}}
{{- if .monitoring.endpoint }}{{ fail "nats.monitoring.endpoint: is for an existing NATS (nats.enabled=false)" }}{{ end -}}
{{- if gt (int .streamReplicas) (int .replicas) }}{{ fail (printf "nats.streamReplicas: %d copies do not fit on nats.replicas=%d servers" (int .streamReplicas) (int .replicas)) }}{{ end -}}
{{- if and .tls.secret (not .auth.caSecret) }}{{ fail "nats.auth.caSecret: is needed with nats.tls.secret, so that services trust that certificate" }}{{ end -}}
{{- if and .auth.caSecret (not .tls.secret) }}{{ fail "nats.tls.secret: is needed with nats.auth.caSecret, or the chart's own NATS does not speak TLS" }}{{ end -}}
{{- if and .tls.certManager.issuer (not .tls.secret) }}{{ fail "nats.tls.secret: name the Secret that cert-manager writes for nats.tls.certManager.issuer; nats.auth.caSecret may be the same" }}{{ end -}}
{{- if and .tls.verifyClients (not .tls.secret) }}{{ fail "nats.tls.secret: is needed with nats.tls.verifyClients, or nothing is shown and nothing is asked for" }}{{ end -}}
{{- if and .tls.verifyClients (not .auth.certificates) }}{{ fail "nats.auth.certificates: is needed with nats.tls.verifyClients: name a Secret for `all`, or one for each service" }}{{ end -}}
{{- if gt (include "groundwatch.maxFileStore" $ | int64) (include "groundwatch.bytes" .storage.size | int64) }}{{ fail (printf "nats.jetstream.maxFileStore: %s is more than the volume (nats.storage.size %s)" .jetstream.maxFileStore .storage.size) }}{{ end -}}
{{- if gt (mulf 2 (include "groundwatch.maxMemoryStore" $ | float64)) (include "groundwatch.bytes" .resources.limits.memory | float64) }}{{ fail (printf "nats.jetstream.maxMemoryStore: %s is more than half of nats.resources.limits.memory %s, and the server needs the rest" .jetstream.maxMemoryStore .resources.limits.memory) }}{{ end -}}
{{- if and .auth.enabled (not .auth.serverConfigSecret) }}{{ fail "nats.auth.serverConfigSecret: is needed with nats.auth.enabled=true; `groundwatch admin auth DIR` writes its auth.conf" }}{{ end -}}
{{- end -}}
{{- if .auth.enabled -}}
{{- $users := list -}}
{{- range concat (include "groundwatch.services" $ | fromJsonArray) (ternary (list "provisioning") list $.Values.provisioning.enabled) }}{{ $users = append $users (include "groundwatch.natsUser" .) }}{{ end -}}
{{- $key := include "groundwatch.natsKey" $ -}}
{{- range $users }}{{ if not (get $.Values.nats.auth.secrets .) }}{{ fail (printf "nats.auth.secrets.%s: name the Secret that holds its %s under `%s`%s" . (ternary "nkey" "credentials" (eq $key "seed")) $key (ternary ", or set toolbox.enabled=false" "" (eq . "cli"))) }}{{ end }}{{ end -}}
{{- else -}}
{{- if .auth.secrets }}{{ fail "nats.auth.enabled: is false, but nats.auth.secrets are given; set it to true" }}{{ end -}}
{{- if .auth.serverConfigSecret }}{{ fail "nats.auth.enabled: is false, but nats.auth.serverConfigSecret is given; set it to true" }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "groundwatch.checkStages" -}}
{{- range list "extraction" "scoring" -}}
{{- if not (get $.Values.stages .).enabled }}{{ fail (printf "stages.%s.enabled: every response passes this stage; without it none would ever have an outcome" .) }}{{ end -}}
{{- end -}}
{{- range $stage, $at := .Values.stages -}}
{{- $about := dict "root" $ "stage" $stage -}}
{{- if include "groundwatch.scaled" $about -}}
{{- $scaling := include "groundwatch.autoscaling" $about | fromJson -}}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) }}{{ fail (printf "stages.%s.autoscaling: minReplicas %d is above maxReplicas %d" $stage (int $scaling.minReplicas) (int $scaling.maxReplicas)) }}{{ end -}}
{{- if hasKey $at "replicas" }}{{ fail (printf "stages.%s.replicas: autoscaling decides; set stages.%s.autoscaling.minReplicas, or its enabled to false" $stage $stage) }}{{ end -}}
{{- $own := $at.autoscaling | default dict -}}
{{- if and $own.lagThreshold $own.targetDelaySeconds }}{{ fail (printf "stages.%s.autoscaling: lagThreshold and targetDelaySeconds say the same thing; give one" $stage) }}{{ end -}}
{{- else if $at.autoscaling -}}
{{- if and (not $.Values.autoscaling.enabled) (ne (toString $at.autoscaling.enabled) "false") }}{{ fail (printf "stages.%s.autoscaling: does nothing while autoscaling.enabled=false" $stage) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "groundwatch.checkModels" -}}
{{- $settings := include "groundwatch.settings" . | fromJson -}}
{{- with .Values.llm -}}
{{- if and .baseUrl (not .model) }}{{ fail "llm.model: name the model that llm.baseUrl serves" }}{{ end -}}
{{- if and (not .baseUrl) (or .model .apiKey.secret) }}{{ fail "llm.baseUrl: is empty, but llm.model or llm.apiKey.secret is given" }}{{ end -}}
{{- end -}}
{{- $named := list -}}
{{- range $stage := splitList " " (include "groundwatch.enabledStages" .) -}}
{{- $section := get $settings $stage | default dict -}}
{{- if and (include "groundwatch.asksLlm" $section) (not $section.llm) }}{{ fail (printf "llm.baseUrl: stage %s has the engine %s and needs a model: set llm.baseUrl and llm.model, or settings.%s.llm" $stage (ternary $section.engine "llm" (has $section.engine (list "llm" "visual"))) $stage) }}{{ end -}}
{{- if and (eq $stage "generation") (eq (toString $section.engine) "openai") (not $section.llm) }}{{ fail "settings.generation.llm: engine openai needs base_url and model of the image generator" }}{{ end -}}
{{- $image := (get $.Values.stages $stage).image | default dict -}}
{{- $embedded := dict "extraction" (list "reader" "") "verification" (list "embedded" "calibrated" "similarity" "") "matching" (list "semantic" "") -}}
{{- $replays := $.Values.replay.image -}}
{{- range $engine := include "groundwatch.engines" $section | fromJsonArray -}}
{{- if and (has $engine (get $embedded $stage | default list)) (not (or $image.repository $image.tag $image.digest)) }}{{ fail (printf "settings.%s.engine: %s runs a model inside the service, which the light image lacks: choose another engine, or name an image with groundwatch[embedded] in stages.%s.image" $stage ($engine | default "the default") $stage) }}{{ end -}}
{{- if and $.Values.replay.enabled (has $engine (get $embedded $stage | default list)) (not (or $replays.repository $replays.tag $replays.digest)) }}{{ fail (printf "replay.image: replays judge with settings.%s.engine too, %s, which runs a model inside the service: name an image with groundwatch[embedded]" $stage ($engine | default "the default")) }}{{ end -}}
{{- end -}}
{{- range include "groundwatch.endpoints" (dict "root" $ "stage" $stage) | fromJsonArray -}}
{{- $named = append $named .api_key_env -}}
{{- $inside := include "groundwatch.inside" .base_url -}}
{{- if and $.Values.networkPolicy.enabled $inside (not $.Values.networkPolicy.llmEgress) }}{{ fail (printf "networkPolicy.llmEgress: %s is %s, inside the cluster: say where its pods are (an egress rule with `to` and `ports`)" (ternary "llm.baseUrl" .key (eq .base_url $.Values.llm.baseUrl)) .base_url) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if .Values.annotation.enabled -}}
{{- range include "groundwatch.endpoints" (dict "root" $ "stage" "annotation") | fromJsonArray }}{{ $named = append $named .api_key_env }}{{ end -}}
{{- end -}}
{{- if and .Values.llm.baseUrl (not (has "LLM_API_KEY" $named)) }}{{ fail "llm.baseUrl: no stage would ask it; give one the engine llm or visual, and no llm of its own" }}{{ end -}}
{{- range $name, $_ := .Values.apiKeys -}}
{{- if hasPrefix "GROUNDWATCH_" $name }}{{ fail (printf "apiKeys.%s: variables with this prefix are settings; choose another name" $name) }}{{ end -}}
{{- if not (has $name $named) }}{{ fail (printf "apiKeys.%s: no stage's settings name it in api_key_env or encoder_key_env" $name) }}{{ end -}}
{{- end -}}
{{- end }}

{{/* Where a Triton server's values stand. */}}
{{- define "groundwatch.placeOf" -}}
{{- if eq . "triton" }}triton{{ else }}triton.servers.{{ trimPrefix "triton-" . }}{{ end -}}
{{- end }}

{{/* Stages never ask for more at once than their models take. */}}
{{- define "groundwatch.checkCapacity" -}}
{{- range $component, $server := include "groundwatch.tritonServers" . | fromJson -}}
{{- $clients := include "groundwatch.clientsOf" (dict "root" $ "server" $server) | fromJsonArray -}}
{{- $each := include "groundwatch.tritonConcurrency" $ | int -}}
{{- $asked := 0 -}}
{{- range $clients }}{{ $asked = add $asked (mul $each (include "groundwatch.mostReplicas" (dict "root" $ "stage" .) | int)) }}{{ end -}}
{{- $taken := mul $server.capacity (include "groundwatch.mostServers" $server | int) -}}
{{- if and $server.capacity (gt (int $asked) (int $taken)) }}{{ fail (printf "%s.capacity: %s could ask for %d at once (settings.triton.concurrency %d × their most replicas), and %d replicas take %d: lower one of the former, or raise its autoscaling.maxReplicas" (include "groundwatch.placeOf" $component) (join ", " $clients) (int $asked) $each (include "groundwatch.mostServers" $server | int) (int $taken)) }}{{ end -}}
{{- end -}}
{{- if .Values.llm.capacity -}}
{{- $asked := 0 -}}
{{- $clients := list -}}
{{- range $stage := splitList " " (include "groundwatch.enabledStages" .) | concat (ternary (list "replay") list .Values.replay.enabled) -}}
{{- range include "groundwatch.endpoints" (dict "root" $ "stage" $stage) | fromJsonArray -}}
{{- if eq .base_url $.Values.llm.baseUrl -}}
{{- $clients = append $clients $stage -}}
{{- $asked = add $asked (mul (int .concurrency) (include "groundwatch.mostReplicas" (dict "root" $ "stage" $stage) | int)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if gt (int $asked) (int .Values.llm.capacity) }}{{ fail (printf "llm.capacity: %s could ask for %d at once (16 for each replica, or their llm.concurrency), and the endpoint takes %d: lower their most replicas or that setting" (uniq $clients | join ", ") (int $asked) (int .Values.llm.capacity)) }}{{ end -}}
{{- end -}}
{{- end }}

{{/* What leads to the gateway from outside, and how many of them there are. */}}
{{/* Whether the gateway asks callers who they are. */}}
{{- define "groundwatch.asksCallers" -}}
{{- if or .Values.gateway.tokensSecret ((.Values.settings.gateway | default dict).login | default dict).oidc }}true{{ end -}}
{{- end }}

{{- define "groundwatch.checkAccess" -}}
{{- $open := .Values.gateway.open -}}
{{- if and (not (include "groundwatch.asksCallers" .)) (ne (toString $open) "true") -}}
{{- $cure := "name a Secret of tokens in gateway.tokensSecret or a provider in settings.gateway.login.oidc, or say gateway.open=true" -}}
{{- if eq (toString $open) "false" }}{{ fail (printf "gateway.open: is false, and nobody could be let in: %s" $cure) }}{{ end -}}
{{- with .Values.gateway -}}
{{- $ways := dict "gateway.ingress.enabled" .ingress.enabled "gateway.httpRoute.enabled" .httpRoute.enabled "gateway.grpc.ingress.enabled" .grpc.ingress.enabled "gateway.grpc.grpcRoute.enabled" .grpc.grpcRoute.enabled "gateway.service.type" (ne .service.type "ClusterIP") -}}
{{- range $way, $leads := $ways -}}
{{- if $leads }}{{ fail (printf "%s: leads from outside the cluster to gateways that ask nobody, where whoever comes may do everything: %s" $way $cure) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "groundwatch.checkRoutes" -}}
{{- $routes := dict "gateway.httpRoute" .Values.gateway.httpRoute "gateway.grpc.grpcRoute" .Values.gateway.grpc.grpcRoute -}}
{{- range $place, $route := $routes -}}
{{- if and $route.enabled (not $route.parentRefs) }}{{ fail (printf "%s.parentRefs: name the Gateway that leads here" $place) }}{{ end -}}
{{- if and $route.enabled (not $route.hostnames) }}{{ fail (printf "%s.hostnames: name the host under which the gateway is reached" $place) }}{{ end -}}
{{- if and (not $route.enabled) (or $route.parentRefs $route.hostnames) }}{{ fail (printf "%s.enabled: is false, but parentRefs or hostnames are given; set it to true" $place) }}{{ end -}}
{{- end -}}
{{- with .Values.gateway.grpc -}}
{{- if and .grpcRoute.enabled (not .enabled) }}{{ fail "gateway.grpc.enabled: is false, but its grpcRoute is given; set it to true" }}{{ end -}}
{{- if and .grpcRoute.enabled .tlsSecret }}{{ fail "gateway.grpc.grpcRoute: a Gateway speaks to it without TLS; leave gateway.grpc.tlsSecret out, or make a TLSRoute of your own" }}{{ end -}}
{{- end -}}
{{- with .Values.gateway.autoscaling -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) }}{{ fail (printf "gateway.autoscaling: minReplicas %d is above maxReplicas %d" (int .minReplicas) (int .maxReplicas)) }}{{ end -}}
{{- end -}}
{{- if and .Values.caBundle.configMap .Values.caBundle.secret }}{{ fail "caBundle: name a configMap or a secret, not both" }}{{ end -}}
{{- end }}

{{- define "groundwatch.checkTriton" -}}
{{- $clients := include "groundwatch.tritonClients" . | fromJsonArray -}}
{{- $url := (.Values.settings.triton | default dict).url -}}
{{- with .Values.triton -}}
{{- if .enabled -}}
{{- if $url }}{{ fail "settings.triton.url: names an existing Triton, but triton.enabled=true brings one; leave one of them out" }}{{ end -}}
{{- if not $clients }}{{ fail "triton.enabled: no stage would ask it; set settings.verification.engine, settings.captioning.engine or settings.generation.engine to triton" }}{{ end -}}
{{- $placed := dict -}}
{{- range $component, $server := include "groundwatch.tritonServers" $ | fromJson -}}
{{- $place := include "groundwatch.placeOf" $component -}}
{{- if and $server.cache.size (eq $server.cache.accessMode "ReadWriteOnce") (or (gt (int $server.replicas) 1) $server.autoscaling.enabled) }}{{ fail (printf "%s.cache.accessMode: ReadWriteOnce is for one replica; use ReadWriteMany, or leave triton.cache.size empty" $place) }}{{ end -}}
{{- range without $server.stages "replay" -}}
{{- if not (has . $clients) }}{{ fail (printf "%s.stages: %s does not ask Triton; set settings.%s.engine, or take it out" $place . .) }}{{ end -}}
{{- with get $placed . }}{{ fail (printf "%s.stages: a stage asks one server, and one is at %s already" $place .) }}{{ end -}}
{{- $_ := set $placed . $place -}}
{{- end -}}
{{- with $server.autoscaling -}}
{{- if and .enabled (not .prometheusUrl) }}{{ fail (printf "%s.autoscaling.prometheusUrl: name the Prometheus that scrapes Triton" $place) }}{{ end -}}
{{- if gt (int .minReplicas) (int .maxReplicas) }}{{ fail (printf "%s.autoscaling: minReplicas %d is above maxReplicas %d" $place (int .minReplicas) (int .maxReplicas)) }}{{ end -}}
{{- if and .enabled (eq (int .minReplicas) 0) (not (include "groundwatch.kedaReadsNats" $)) }}{{ fail (printf "%s.autoscaling.minReplicas: with 0 only the backlog starts a server, and KEDA must read it: set triton.autoscaling.enabled=true, and nats.monitoring.endpoint for a NATS of yours" $place) }}{{ end -}}
{{- range .schedules }}{{ if gt (int .replicas) (int $server.autoscaling.maxReplicas) }}{{ fail (printf "%s.autoscaling.schedules: %d replicas are above maxReplicas %d" $place (int .replicas) (int $server.autoscaling.maxReplicas)) }}{{ end }}{{ end -}}
{{- end -}}
{{- end -}}
{{- range without $clients "replay" }}{{ if not (get $placed .) }}{{ fail (printf "triton.servers: %s asks Triton, and no server has it among its stages" .) }}{{ end }}{{ end -}}
{{- else -}}
{{- if and $clients (not $url) }}{{ fail (printf "settings.%s.engine: asks Triton; set triton.enabled=true, or settings.triton.url" (first $clients)) }}{{ end -}}
{{- if .autoscaling.enabled }}{{ fail "triton.autoscaling.enabled: there is nothing to scale while triton.enabled=false" }}{{ end -}}
{{- if .servers }}{{ fail "triton.enabled: is false, but triton.servers are given; set it to true" }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "groundwatch.checkResources" -}}
{{- $all := dict -}}
{{- range list "gateway" "archive" "outflow" "annotation" "auditor" "replay" "retention" "toolbox" "triton" "nats" "provisioning" }}{{ $_ := set $all (printf "%s.resources" .) (get $.Values .).resources }}{{ end -}}
{{- range $component, $server := include "groundwatch.tritonServers" . | fromJson }}{{ if ne $component "triton" }}{{ $_ := set $all (printf "triton.servers.%s.resources" (trimPrefix "triton-" $component)) $server.resources }}{{ end }}{{ end -}}
{{- range splitList " " (include "groundwatch.stages" .) }}{{ $_ := set $all (printf "stages.%s.resources" .) (include "groundwatch.stageResources" (dict "root" $ "stage" .) | fromJson) }}{{ end -}}
{{- range $key, $resources := $all -}}
{{- range $unit := list "cpu" "memory" -}}
{{- $request := get ($resources.requests | default dict) $unit -}}
{{- $limit := get ($resources.limits | default dict) $unit -}}
{{- if not $request }}{{ fail (printf "%s.requests.%s: is needed, so that the scheduler knows what the pod takes" $key $unit) }}{{ end -}}
{{- if not $limit }}{{ fail (printf "%s.limits.%s: is needed, so that one pod cannot starve its node" $key $unit) }}{{ end -}}
{{- if gt (include "groundwatch.amount" $request | float64) (include "groundwatch.amount" $limit | float64) }}{{ fail (printf "%s.requests.%s: %v is more than the limit %v" $key $unit $request $limit) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/*
Whether NATS has room for the load, by the arithmetic of bench/sizing.py, whose constants these are: a test compares
what both say. Of partitions each server has a part, which is not reckoned here.
*/}}
{{- define "groundwatch.checkLoad" -}}
{{- $settings := .Values.settings -}}
{{- $cache := ($settings.cache | default dict).max_bytes | default 268435456 -}}
{{- with .Values.load -}}
{{- if and $.Values.nats.enabled .responsesPerSecond (eq (include "groundwatch.partitions" $ | int) 1) -}}
{{- $stored := and $.Values.archive.enabled (not (include "groundwatch.archiveOnVolume" $)) -}}
{{- $days := ternary (($settings.archive | default dict).hot_days | default 3) 30 (not (empty $stored)) -}}
{{- $held := mulf .responsesPerSecond $days 86400 -}}
{{- $disk := divf (addf 3154116608 $cache (mulf $held (addf 17000 .imageBytes))) 0.85 -}}
{{- $memory := divf (addf 150000000 (mulf .responsesPerSecond 600 4 129) (mulf $held 1750)) 0.85 -}}
{{- $change := "give it more, lower load.responsesPerSecond or load.imageBytes to what comes, or shorten settings.archive.hot_days with an archive in an object store (docs/sizing.md)" -}}
{{- if gt $disk (include "groundwatch.bytes" $.Values.nats.storage.size | float64) }}{{ fail (printf "nats.storage.size: %s is too small for load: %v responses a second with %v bytes of images for %v days need %.0fGi; %s" $.Values.nats.storage.size .responsesPerSecond .imageBytes $days (ceil (divf $disk 1073741824)) $change) }}{{ end -}}
{{- $store := mulf $disk 0.85 -}}
{{- with $.Values.nats.jetstream.maxFileStore }}{{ if gt $store (include "groundwatch.bytes" . | float64) }}{{ fail (printf "nats.jetstream.maxFileStore: %s is too small for load, which needs %.0fGi; %s" . (ceil (divf $store 1073741824)) $change) }}{{ end }}{{ end -}}
{{- if gt $memory (include "groundwatch.bytes" $.Values.nats.resources.limits.memory | float64) }}{{ fail (printf "nats.resources.limits.memory: %s is too small for load: %v responses a second for %v days need %.0fMi; %s" $.Values.nats.resources.limits.memory .responsesPerSecond $days (ceil (divf $memory 1048576)) $change) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}
