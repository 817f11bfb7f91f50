{{/* Peers by component. Takes (dict "root" $ "components" <list>). */}}
{{- define "groundwatch.peers" -}}
- podSelector:
    matchLabels:
      app.kubernetes.io/name: {{ include "groundwatch.name" .root }}
      app.kubernetes.io/instance: {{ .root.Release.Name }}
    matchExpressions:
      - key: app.kubernetes.io/component
        operator: In
        values: {{ toJson .components }}
{{- end }}

{{- define "groundwatch.namespacePeer" -}}
- namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ . | quote }}
{{- end }}

{{- define "groundwatch.dnsEgress" -}}
{{- if .Values.networkPolicy.dnsEgress }}
{{- toYaml .Values.networkPolicy.dnsEgress }}
{{- else -}}
- to:
    - namespaceSelector: {}
      podSelector:
        matchExpressions:
          - {key: k8s-app, operator: In, values: [kube-dns, node-local-dns]}
  ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
{{- end }}
{{- end }}

{{/* Where an archive in an object store is. */}}
{{- define "groundwatch.archiveEgress" -}}
{{- if and .Values.archive.enabled (not (include "groundwatch.archiveOnVolume" .)) }}
{{- if .Values.networkPolicy.archiveEgress }}
{{- toYaml .Values.networkPolicy.archiveEgress }}
{{- else }}
{{- include "groundwatch.publicEgress" (list (include "groundwatch.portOf" (dict "url" (include "groundwatch.archiveEndpoint" .) "default" 443) | int)) | trim }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where the object store is asked, if it is no cloud's own. */}}
{{- define "groundwatch.archiveEndpoint" -}}
{{- $options := (.Values.settings.archive | default dict).options | default dict -}}
{{- $options.endpoint_url | default $options.AWS_ENDPOINT_URL | default $options.aws_endpoint_url | default "" -}}
{{- end }}

{{/* "true" where a URL names a host inside the cluster. */}}
{{- define "groundwatch.inside" -}}
{{- $host := regexReplaceAll "^https?://" . "" | splitList "/" | first | splitList ":" | first -}}
{{- if or (not (contains "." $host)) (regexMatch "\\.(svc|local|internal)$" $host) (regexMatch "\\.svc\\." $host) (regexMatch "^(10|127|192\\.168|172\\.(1[6-9]|2[0-9]|3[01]))\\." $host) }}true{{ end -}}
{{- end }}

{{/* The port of a URL, or of host:port. Takes (dict "url" "…" "default" 443). */}}
{{- define "groundwatch.portOf" -}}
{{- $host := regexReplaceAll "^[a-z]+://" .url "" | splitList "/" | first -}}
{{- $port := regexFind ":[0-9]+$" $host -}}
{{- if $port }}{{ trimPrefix ":" $port }}{{ else if hasPrefix "http://" .url }}80{{ else }}{{ .default }}{{ end -}}
{{- end }}

{{- define "groundwatch.natsEgress" -}}
{{- if .Values.nats.enabled }}
- to:
    {{- include "groundwatch.peers" (dict "root" . "components" (list "nats")) | nindent 4 }}
  ports:
    - {port: 4222, protocol: TCP}
{{- else if .Values.networkPolicy.natsEgress }}
{{ toYaml .Values.networkPolicy.natsEgress }}
{{- else }}
- ports:
  {{- range splitList "," .Values.nats.url }}
    - {port: {{ include "groundwatch.portOf" (dict "url" (trim .) "default" 4222) }}, protocol: TCP}
  {{- end }}
{{- end }}
{{- end }}

{{/* Policies know no host names: public addresses, at these ports alone. Takes a list of ports. */}}
{{- define "groundwatch.publicEgress" -}}
- to:
    - ipBlock:
        cidr: 0.0.0.0/0
        except: [10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, 192.168.0.0/16]
    - ipBlock:
        cidr: "::/0"
        except: ["::1/128", "fc00::/7", "fe80::/10"]
  ports:
    {{- range uniq . }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- end }}

{{/* Where the receivers are. */}}
{{- define "groundwatch.receiverEgress" -}}
{{- if .Values.networkPolicy.outflowEgress }}
{{ toYaml .Values.networkPolicy.outflowEgress }}
{{- else }}
{{- $ports := list }}
{{- range (.Values.settings.outflow | default dict).receivers }}{{ $ports = append $ports (include "groundwatch.portOf" (dict "url" .url "default" 443) | int) }}{{ end }}
{{ include "groundwatch.publicEgress" $ports }}
{{- end }}
{{- end }}

{{/* Where a stage's model endpoints and Triton are. Takes (dict "root" $ "stage" "…"). */}}
{{- define "groundwatch.modelEgress" -}}
{{- $root := .root -}}
{{- $endpoints := include "groundwatch.endpoints" . | fromJsonArray -}}
{{- if and $endpoints $root.Values.networkPolicy.llmEgress }}
{{ toYaml $root.Values.networkPolicy.llmEgress }}
{{- else if $endpoints }}
{{- $ports := list }}
{{- range $endpoints }}{{ $ports = append $ports (include "groundwatch.portOf" (dict "url" .base_url "default" 443) | int) }}{{ end }}
{{ include "groundwatch.publicEgress" $ports }}
{{- end }}
{{- if include "groundwatch.usesTriton" . }}
{{- if $root.Values.triton.enabled }}
- to:
    {{- include "groundwatch.peers" (dict "root" $root "components" (list (include "groundwatch.tritonComponentOf" .))) | nindent 4 }}
  ports:
    - {port: 8001, protocol: TCP}
{{- else if $root.Values.networkPolicy.tritonEgress }}
{{ toYaml $root.Values.networkPolicy.tritonEgress }}
{{- else }}
- ports:
    - {port: {{ include "groundwatch.portOf" (dict "url" ($root.Values.settings.triton | default dict).url "default" 8001) }}, protocol: TCP}
{{- end }}
{{- end }}
{{- end }}
