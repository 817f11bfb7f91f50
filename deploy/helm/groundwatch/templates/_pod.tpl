{{/* What every pod here has: no rights at the API server, no root. Takes (dict "root" $ "user" <uid>). */}}
{{- define "groundwatch.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .priorityClassName | default .root.Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .user | int64 }}
  runAsGroup: {{ .user | int64 }}
  fsGroup: {{ .user | int64 }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "groundwatch.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* Where a pod may run. Takes (dict "root" $ "component" "…" "at" <values with nodeSelector and so on>). */}}
{{- define "groundwatch.placement" -}}
{{- with .at.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .at.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .at.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .root.Values.topologySpread.enabled }}
topologySpreadConstraints:
  {{- $constraint := .zone | default .root.Values.topologySpread.whenUnsatisfiable }}
  {{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: {{ ternary $constraint "ScheduleAnyway" (eq $key "topology.kubernetes.io/zone") }}
    labelSelector:
      matchLabels:
        {{- include "groundwatch.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Environment of a groundwatch process. Takes (dict "root" $ "service" "…" "env" <list>). */}}
{{- define "groundwatch.env" -}}
{{- $root := .root -}}
- name: GROUNDWATCH_CONFIG
  value: /etc/groundwatch/groundwatch.toml
- name: HOME
  value: /tmp
{{- if $root.Values.nats.auth.enabled }}
- name: GROUNDWATCH_NATS__NKEY_SEED_FILE
  value: /run/secrets/groundwatch/nats/seed
{{- end }}
{{- if $root.Values.nats.auth.caSecret }}
- name: GROUNDWATCH_NATS__TLS_CA
  value: /run/secrets/groundwatch/ca/ca.crt
{{- end }}
{{- $names := list }}
{{- range include "groundwatch.endpoints" (dict "root" $root "stage" .service) | fromJsonArray }}
{{- $names = append $names .api_key_env }}
{{- end }}
{{- range $name := uniq $names }}
{{- $source := get $root.Values.apiKeys $name }}
{{- if and (eq $name "LLM_API_KEY") $root.Values.llm.apiKey.secret }}
{{- $source = $root.Values.llm.apiKey }}
{{- end }}
{{- if $source }}
- name: {{ $name }}
  valueFrom:
    secretKeyRef:
      name: {{ $source.secret | quote }}
      key: {{ $source.key | quote }}
{{- end }}
{{- end }}
{{- with .env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "groundwatch.mounts" -}}
- name: settings
  mountPath: /etc/groundwatch
  readOnly: true
- name: scratch
  mountPath: /tmp
{{- if .root.Values.nats.auth.enabled }}
- name: nats-seed
  mountPath: /run/secrets/groundwatch/nats
  readOnly: true
{{- end }}
{{- if .root.Values.nats.auth.caSecret }}
- name: nats-ca
  mountPath: /run/secrets/groundwatch/ca
  readOnly: true
{{- end }}
{{- end }}

{{- define "groundwatch.volumes" -}}
- name: settings
  configMap:
    name: {{ include "groundwatch.fullname" .root }}-settings
- name: scratch
  emptyDir:
    sizeLimit: 1Gi
{{- if .root.Values.nats.auth.enabled }}
- name: nats-seed
  secret:
    secretName: {{ get .root.Values.nats.auth.secrets .service | quote }}
    defaultMode: 0440
    items:
      - key: seed
        path: seed
{{- end }}
{{- with .root.Values.nats.auth.caSecret }}
- name: nats-ca
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0444
    items:
      - key: ca.crt
        path: ca.crt
{{- end }}
{{- end }}

{{/*
A groundwatch service's pod template. Takes
(dict "root" $ "component" "…" "at" <values> "ports" <extra ports> "mounts" "volumes" "zone" "priorityClassName"), and where
they are not those of a service, "service" <NATS user> and "args".
It waits by itself until NATS answers and holds its streams (`--wait`), so that no container is spent on that.
Ready means that its durable consumer is there and served: /readyz looks at it. A pod that never gets so far
is started again; one that loses it later is only taken out, since starting it again would not bring it back.
*/}}
{{- define "groundwatch.servicePod" -}}
{{- $root := .root -}}
{{- $context := dict "root" $root "component" .component "service" (.service | default .component) "env" .at.env "at" .at -}}
{{- $serve := list "serve" .component "--wait" ($root.Values.provisioning.waitSeconds | int | toString) -}}
metadata:
  labels:
    {{- include "groundwatch.labels" $context | nindent 4 }}
  annotations:
    checksum/settings: {{ include "groundwatch.settingsToml" $root | sha256sum }}
    {{- with .at.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "groundwatch.fullname" $root }}-{{ .component }}
  {{- include "groundwatch.podSecurity" (dict "root" $root "user" $root.Values.runAsUser "priorityClassName" .priorityClassName) | nindent 2 }}
  terminationGracePeriodSeconds: {{ $root.Values.terminationGracePeriodSeconds | int }}
  {{- include "groundwatch.placement" $context | nindent 2 }}
  containers:
    - name: {{ .component }}
      image: {{ include "groundwatch.image" (dict "root" $root "override" .at.image) }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: {{ toJson (.args | default $serve) }}
      env:
        {{- include "groundwatch.env" $context | nindent 8 }}
      ports:
        - name: telemetry
          containerPort: {{ $root.Values.telemetry.port | int }}
        {{- range $name, $port := .ports }}
        - name: {{ $name }}
          containerPort: {{ $port }}
        {{- end }}
      startupProbe:
        httpGet: {path: /readyz, port: telemetry}
        periodSeconds: 2
        timeoutSeconds: 2
        # The wait for the streams, and two minutes for a model's.
        failureThreshold: {{ div (add $root.Values.provisioning.waitSeconds 120) 2 }}
      readinessProbe:
        httpGet: {path: /readyz, port: telemetry}
        periodSeconds: 5
        timeoutSeconds: 3
        failureThreshold: 3
      livenessProbe:
        httpGet: {path: /healthz, port: telemetry}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      resources:
        {{- toYaml .resources | nindent 8 }}
      {{- include "groundwatch.containerSecurity" . | nindent 6 }}
      volumeMounts:
        {{- include "groundwatch.mounts" $context | nindent 8 }}
        {{- with .mounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    {{- include "groundwatch.volumes" $context | nindent 4 }}
    {{- with .volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* Files of the gateway's doors, as a JSON list of {name, folder, secret, items}. */}}
{{- define "groundwatch.gatewaySecrets" -}}
{{- $found := list -}}
{{- with .Values.gateway.tokensSecret }}{{ $found = append $found (dict "name" "tokens" "folder" "gateway" "secret" . "items" (list (dict "key" "tokens" "path" "tokens"))) }}{{ end -}}
{{- with .Values.gateway.grpc -}}
{{- if .tlsSecret }}{{ $found = append $found (dict "name" "grpc-tls" "folder" "grpc" "secret" .tlsSecret "items" (list (dict "key" "tls.crt" "path" "tls.crt") (dict "key" "tls.key" "path" "tls.key"))) }}{{ end -}}
{{- if and .enabled $.Values.nats.auth.enabled }}{{ $found = append $found (dict "name" "replay-seed" "folder" "replay" "secret" $.Values.nats.auth.secrets.replay "items" (list (dict "key" "seed" "path" "seed"))) }}{{ end -}}
{{- end -}}
{{- toJson $found -}}
{{- end }}

{{/* The pod that creates streams and consumers. */}}
{{- define "groundwatch.provisioningPod" -}}
{{- $context := dict "root" . "component" "provisioning" "service" "provision" -}}
metadata:
  labels:
    {{- include "groundwatch.labels" $context | nindent 4 }}
spec:
  restartPolicy: OnFailure
  serviceAccountName: {{ include "groundwatch.fullname" . }}-provisioning
  {{- include "groundwatch.podSecurity" (dict "root" . "user" .Values.runAsUser) | nindent 2 }}
  terminationGracePeriodSeconds: 30
  containers:
    - name: provisioning
      image: {{ include "groundwatch.image" (dict "root" .) }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [admin, provision]
      env:
        {{- include "groundwatch.env" $context | nindent 8 }}
      resources:
        {{- toYaml .Values.provisioning.resources | nindent 8 }}
      {{- include "groundwatch.containerSecurity" . | nindent 6 }}
      volumeMounts:
        {{- include "groundwatch.mounts" $context | nindent 8 }}
  volumes:
    {{- include "groundwatch.volumes" $context | nindent 4 }}
{{- end }}

{{/* A stage's resources with the defaults, as JSON. Takes (dict "root" $ "stage" "…"). */}}
{{- define "groundwatch.stageResources" -}}
{{- $own := (get .root.Values.stages .stage).resources | default dict -}}
{{- toJson (merge (deepCopy $own) (deepCopy .root.Values.stageDefaults.resources)) -}}
{{- end }}
