{{/* Labels of a pod: its component's, and the values' own. Takes (dict "root" $ "component" "…" "at" <values>). */}}
{{- define "groundwatch.podLabels" -}}
{{ include "groundwatch.labels" . }}
{{- with merge (deepCopy (.at.podLabels | default dict)) .root.Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Annotations of a pod, with those of `annotations` if there are any. Takes the same. */}}
{{- define "groundwatch.podAnnotations" -}}
{{- with merge (deepCopy (.at.podAnnotations | default dict)) .root.Values.podAnnotations (.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Containers of the site's own that run before, or beside, the pod's. Takes (dict "root" $ "at" <values>). */}}
{{- define "groundwatch.initContainers" -}}
{{- with concat .root.Values.extraInitContainers (.at.initContainers | default list) }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "groundwatch.containersBeside" -}}
{{- with concat .root.Values.extraContainers (.at.containers | default list) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* How long a service's start may take at most, and some more: before that no rollout has failed. */}}
{{- define "groundwatch.progressDeadline" -}}
progressDeadlineSeconds: {{ add .Values.provisioning.waitSeconds 240 }}
{{- end }}

{{/* What every pod here has: no rights at the API server, no root. Takes (dict "root" $ "at" <values> "identity"
<values with runAsUser and fsGroup; where they are null, the cluster chooses>). */}}
{{- define "groundwatch.podSecurity" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .at.priorityClassName | default .root.Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .at.runtimeClassName | default .root.Values.runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- $identity := .identity | default .root.Values }}
securityContext:
  runAsNonRoot: true
  {{- with $identity.runAsUser }}
  runAsUser: {{ . | int64 }}
  runAsGroup: {{ . | int64 }}
  {{- end }}
  {{- with $identity.fsGroup }}
  fsGroup: {{ . | int64 }}
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
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
{{- $values := .root.Values }}
{{- with merge (deepCopy (.at.nodeSelector | default dict)) $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat (.at.tolerations | default list) $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .at.affinity | default $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- $own := include "groundwatch.selector" . | fromYaml }}
{{- $spread := .at.topologySpreadConstraints | default $values.topologySpreadConstraints }}
{{- if $spread }}
topologySpreadConstraints:
  {{- range $spread }}
  - {{- merge (deepCopy .) (dict "labelSelector" (dict "matchLabels" $own)) | toYaml | nindent 4 }}
  {{- end }}
{{- else if $values.topologySpread.enabled }}
topologySpreadConstraints:
  {{- $constraint := .zone | default $values.topologySpread.whenUnsatisfiable }}
  {{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: {{ ternary $constraint "ScheduleAnyway" (eq $key "topology.kubernetes.io/zone") }}
    labelSelector:
      matchLabels:
        {{- toYaml $own | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The Secret whose certificate a service shows to NATS, if it shows one. Takes (dict "root" $ "service" "…"). */}}
{{- define "groundwatch.natsCertificate" -}}
{{- $certificates := .root.Values.nats.auth.certificates -}}
{{- get $certificates .service | default (get $certificates "all") -}}
{{- end }}

{{/* The setting that names a service's secret, and its file there: a seed, or credentials. */}}
{{- define "groundwatch.natsKey" -}}{{ ternary "creds" "seed" (eq .Values.nats.auth.method "jwt") }}{{- end }}

{{/* Environment of a groundwatch process. Takes (dict "root" $ "service" "…" "at" <values>). */}}
{{- define "groundwatch.env" -}}
{{- $root := .root -}}
- name: GROUNDWATCH_CONFIG
  value: /etc/groundwatch/groundwatch.toml
- name: HOME
  value: /tmp
{{- if $root.Values.nats.auth.enabled }}
- name: {{ ternary "GROUNDWATCH_NATS__CREDENTIALS" "GROUNDWATCH_NATS__NKEY_SEED_FILE" (eq $root.Values.nats.auth.method "jwt") }}
  value: /run/secrets/groundwatch/nats/{{ include "groundwatch.natsKey" $root }}
{{- end }}
{{- if $root.Values.nats.auth.caSecret }}
- name: GROUNDWATCH_NATS__TLS_CA
  value: /run/secrets/groundwatch/ca/ca.crt
{{- end }}
{{- if include "groundwatch.natsCertificate" . }}
- name: GROUNDWATCH_NATS__TLS_CERT
  value: /run/secrets/groundwatch/certificate/tls.crt
- name: GROUNDWATCH_NATS__TLS_KEY
  value: /run/secrets/groundwatch/certificate/tls.key
{{- end }}
{{- if include "groundwatch.trustsBundle" $root }}
{{- range list "SSL_CERT_FILE" "REQUESTS_CA_BUNDLE" "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH" }}
- name: {{ . }}
  value: /run/secrets/groundwatch/bundle/bundle.crt
{{- end }}
{{- end }}
{{- with include "groundwatch.tritonServerOf" . }}
- name: GROUNDWATCH_TRITON__URL
  value: {{ . }}.{{ $root.Release.Namespace }}.svc:8001
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
{{- with concat $root.Values.extraEnv ($root.Values.archive.env | default list) (.at.env | default list) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What a process takes its environment from, if there is any. Takes the same. */}}
{{- define "groundwatch.envFrom" -}}
{{- with concat .root.Values.extraEnvFrom (.root.Values.archive.envFrom | default list) (.at.envFrom | default list) | uniq }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* "true" with a bundle of certificates of the cluster's own. */}}
{{- define "groundwatch.trustsBundle" -}}
{{- if or .Values.caBundle.configMap .Values.caBundle.secret }}true{{ end -}}
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
{{- if include "groundwatch.natsCertificate" . }}
- name: nats-certificate
  mountPath: /run/secrets/groundwatch/certificate
  readOnly: true
{{- end }}
{{- if include "groundwatch.trustsBundle" .root }}
- name: ca-bundle
  mountPath: /run/secrets/groundwatch/bundle
  readOnly: true
{{- end }}
{{- with concat .root.Values.extraVolumeMounts (.at.volumeMounts | default list) }}
{{ toYaml . }}
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
      {{- $key := include "groundwatch.natsKey" .root }}
      - key: {{ $key }}
        path: {{ $key }}
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
{{- with include "groundwatch.natsCertificate" . }}
- name: nats-certificate
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0440
    items:
      - key: tls.crt
        path: tls.crt
      - key: tls.key
        path: tls.key
{{- end }}
{{- with .root.Values.caBundle }}
{{- if or .configMap .secret }}
- name: ca-bundle
  {{- $items := list (dict "key" .key "path" "bundle.crt") }}
  {{- if .configMap }}
  configMap: {{- dict "name" .configMap "items" $items | toYaml | nindent 4 }}
  {{- else }}
  secret: {{- dict "secretName" .secret "defaultMode" 292 "items" $items | toYaml | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}
{{- with concat .root.Values.extraVolumes (.at.volumes | default list) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
A groundwatch service's pod template. Takes
(dict "root" $ "component" "…" "at" <values> "ports" <extra ports> "mounts" "volumes" "drain" <seconds>), and where
they are not those of a service, "service" <NATS user> and "args".
It waits by itself until NATS answers and holds its streams (`--wait`), so that no container is spent on that.
Ready means that its durable consumer is there and served: /readyz looks at it. A pod that never gets so far
is started again; one that loses it later is only taken out, since starting it again would not bring it back.
*/}}
{{- define "groundwatch.servicePod" -}}
{{- $root := .root -}}
{{- $context := dict "root" $root "component" .component "service" (.service | default .component) "at" .at -}}
{{- $serve := list "serve" .component "--wait" ($root.Values.provisioning.waitSeconds | int | toString) -}}
{{- $checksum := dict "checksum/settings" (include "groundwatch.settingsToml" $root | sha256sum) -}}
metadata:
  labels:
    {{- include "groundwatch.podLabels" $context | nindent 4 }}
  {{- include "groundwatch.podAnnotations" (merge (dict "annotations" $checksum) $context) | nindent 2 }}
spec:
  serviceAccountName: {{ include "groundwatch.fullname" $root }}-{{ .component }}
  {{- include "groundwatch.podSecurity" $context | nindent 2 }}
  terminationGracePeriodSeconds: {{ add $root.Values.terminationGracePeriodSeconds (.drain | default 0) }}
  {{- include "groundwatch.placement" $context | nindent 2 }}
  {{- include "groundwatch.initContainers" $context | nindent 2 }}
  containers:
    - name: {{ .component }}
      image: {{ include "groundwatch.image" (dict "root" $root "override" .at.image) }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: {{ toJson (.args | default $serve) }}
      env:
        {{- include "groundwatch.env" $context | nindent 8 }}
      {{- include "groundwatch.envFrom" $context | nindent 6 }}
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
    {{- include "groundwatch.containersBeside" $context | nindent 4 }}
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
{{- with .Values.gateway.login -}}
{{- if .cookieSecret }}{{ $found = append $found (dict "name" "login" "folder" "login" "secret" .cookieSecret "items" (list (dict "key" "cookie" "path" "cookie"))) }}{{ end -}}
{{- if .clientSecret }}{{ $found = append $found (dict "name" "oidc" "folder" "oidc" "secret" .clientSecret "items" (list (dict "key" "client" "path" "client"))) }}{{ end -}}
{{- end -}}
{{- with .Values.gateway.grpc -}}
{{- if .tlsSecret }}{{ $found = append $found (dict "name" "grpc-tls" "folder" "grpc" "secret" .tlsSecret "items" (list (dict "key" "tls.crt" "path" "tls.crt") (dict "key" "tls.key" "path" "tls.key"))) }}{{ end -}}
{{- end -}}
{{- if include "groundwatch.beginsReplays" . }}{{ $found = append $found (dict "name" "replay-seed" "folder" "replay" "secret" .Values.nats.auth.secrets.replay "items" (list (dict "key" "seed" "path" "seed"))) }}{{ end -}}
{{- toJson $found -}}
{{- end }}

{{/*
The pod of a Job: one run of the command line. Takes (dict "root" $ "component" "…" "service" <NATS user> "at" <values>
"args" <list> "mounts" "volumes").
*/}}
{{- define "groundwatch.jobPod" -}}
metadata:
  labels:
    {{- include "groundwatch.podLabels" . | nindent 4 }}
  {{- include "groundwatch.podAnnotations" . | nindent 2 }}
spec:
  restartPolicy: OnFailure
  serviceAccountName: {{ include "groundwatch.fullname" .root }}-{{ .component }}
  {{- include "groundwatch.podSecurity" . | nindent 2 }}
  terminationGracePeriodSeconds: 30
  {{- include "groundwatch.placement" . | nindent 2 }}
  {{- include "groundwatch.initContainers" . | nindent 2 }}
  containers:
    - name: {{ .component }}
      image: {{ include "groundwatch.image" (dict "root" .root "override" .at.image) }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args: {{ toJson .args }}
      env:
        {{- include "groundwatch.env" . | nindent 8 }}
      {{- include "groundwatch.envFrom" . | nindent 6 }}
      resources:
        {{- toYaml .at.resources | nindent 8 }}
      {{- include "groundwatch.containerSecurity" . | nindent 6 }}
      volumeMounts:
        {{- include "groundwatch.mounts" . | nindent 8 }}
        {{- with .mounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    {{- include "groundwatch.volumes" . | nindent 4 }}
    {{- with .volumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* A component's values with an affinity for the archive's node, where its volume is for one node, as JSON. */}}
{{- define "groundwatch.nearArchive" -}}
{{- $at := deepCopy .at -}}
{{- if and (include "groundwatch.archiveOnVolume" .root) (not $at.affinity) (eq .root.Values.archive.storage.accessMode "ReadWriteOnce") -}}
{{- $near := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "groundwatch.selector" (dict "root" .root "component" "archive") | fromYaml)) -}}
{{- $_ := set $at "affinity" (dict "podAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $near))) -}}
{{- end -}}
{{- toJson $at -}}
{{- end }}

{{/* The archive's volume, for others than the archive, as a JSON list of volumes: one, or none. */}}
{{- define "groundwatch.archiveVolume" -}}
{{- if include "groundwatch.archiveOnVolume" . -}}
{{- $claim := .Values.archive.storage.existingClaim | default (printf "archive-%s-archive-0" (include "groundwatch.fullname" .)) -}}
{{- list (dict "name" "archive" "persistentVolumeClaim" (dict "claimName" $claim)) | toJson -}}
{{- else }}[]{{ end -}}
{{- end }}

{{- define "groundwatch.archiveMount" -}}
{{- if include "groundwatch.archiveOnVolume" . -}}
{{- list (dict "name" "archive" "mountPath" "/var/lib/groundwatch") | toJson -}}
{{- else }}[]{{ end -}}
{{- end }}

{{/* A stage's resources with the defaults, as JSON. Takes (dict "root" $ "stage" "…"). */}}
{{- define "groundwatch.stageResources" -}}
{{- $own := (get .root.Values.stages .stage).resources | default dict -}}
{{- toJson (merge (deepCopy $own) (deepCopy .root.Values.stageDefaults.resources)) -}}
{{- end }}
