{{- define "envoy-rls.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- /* 50 characters leave room for "-headless" in a Service's 63. */}}
{{- define "envoy-rls.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "envoy-rls.selector" -}}
app.kubernetes.io/name: {{ include "envoy-rls.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end }}

{{- define "envoy-rls.redisSelector" -}}
app.kubernetes.io/name: {{ include "envoy-rls.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: redis
{{- end }}

{{- define "envoy-rls.chartLabels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "envoy-rls.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* Not empty if there is a Redis of this release. */}}
{{- define "envoy-rls.trialRedis" -}}
{{- if and (eq .Values.store "redis") (not .Values.redis.url) }}yes{{ end }}
{{- end }}

{{- define "envoy-rls.redisURL" -}}
{{- .Values.redis.url | default (printf "redis://%s-redis:6379" (include "envoy-rls.fullname" .)) }}
{{- end }}

{{- define "envoy-rls.rulesConfigMap" -}}
{{- .Values.rulesConfigMap | default (printf "%s-rules" (include "envoy-rls.fullname" .)) }}
{{- end }}

{{- /* Not empty if there is more than one replica. */}}
{{- define "envoy-rls.replicated" -}}
{{- if eq .Values.store "redis" }}yes{{ end }}
{{- end }}

{{- /* The ports of redisPorts and of redis.url, each once, as JSON. */}}
{{- define "envoy-rls.redisPorts" -}}
{{- $ports := list }}
{{- range .Values.networkPolicy.redisPorts }}{{ $ports = append $ports (int .) }}{{ end }}
{{- range regexFindAll ":[0-9]+(,|/|[?]|$)" .Values.redis.url -1 }}{{ $ports = append $ports (regexFind "[0-9]+" . | int) }}{{ end }}
{{- $ports | uniq | sortAlpha | toJson }}
{{- end }}

{{- /* The ports of the control plane and of the collector that extraArgs and extraEnv name, each once, as JSON. */}}
{{- define "envoy-rls.settingsPorts" -}}
{{- $places := list }}
{{- range .Values.extraArgs }}{{ if hasPrefix "--xds-server=" . }}{{ $places = append $places . }}{{ end }}{{ end }}
{{- $names := list "CONFIG_GRPC_XDS_SERVER_URL" "OTEL_EXPORTER_OTLP_ENDPOINT" "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" }}
{{- range .Values.extraEnv }}{{ if has .name $names }}{{ $places = append $places (toString .value) }}{{ end }}{{ end }}
{{- $ports := list }}
{{- range $places }}
{{- with regexFind ":[0-9]+(/|$)" . }}{{ $ports = append $ports (regexFind "[0-9]+" . | int) }}{{ end }}
{{- end }}
{{- $ports | uniq | sortAlpha | toJson }}
{{- end }}

{{- /* Ends the rendering with all that is wrong with the values. */}}
{{- define "envoy-rls.check" -}}
{{- $wrong := list }}
{{- with .Values }}
{{- if not .image.repository }}
{{- $wrong = append $wrong "image.repository is empty: --set image.repository=REGISTRY/envoy-rls says where you keep the image" }}
{{- end }}
{{- if and .networkPolicy.enabled (not .networkPolicy.gatewayNamespaces) }}
{{- $wrong = append $wrong "nobody may call: --set 'networkPolicy.gatewayNamespaces={NAMESPACE}' says where your Envoys are, or --set networkPolicy.enabled=false lets anybody" }}
{{- end }}
{{- if and .networkPolicy.enabled .serviceMonitor.enabled (not .networkPolicy.monitoringNamespaces) }}
{{- $wrong = append $wrong "Prometheus may not read: --set 'networkPolicy.monitoringNamespaces={NAMESPACE}' says where it is" }}
{{- end }}
{{- if regexMatch "://[^/@]*:[^/@]*@" .redis.url }}
{{- $wrong = append $wrong "redis.url holds a password, which whoever may see the Deployment would see: put it into a Secret, under the key auth, and name that by redis.authSecret" }}
{{- end }}
{{- if and (not .redis.url) (or .redis.authSecret .redis.sentinelAuthSecret .redis.tlsSecret) }}
{{- $wrong = append $wrong "redis.authSecret, redis.sentinelAuthSecret and redis.tlsSecret are of a Redis of yours: give its address by redis.url" }}
{{- end }}
{{- if and .redis.tlsClientCertificate (not .redis.tlsSecret) }}
{{- $wrong = append $wrong "redis.tlsClientCertificate needs redis.tlsSecret, which holds it" }}
{{- end }}
{{- if and (eq .store "memory") .redis.url }}
{{- $wrong = append $wrong "store is memory, and there is a redis.url: leave one of them away" }}
{{- end }}
{{- if and .tls.clientCA (not .tls.secret) }}
{{- $wrong = append $wrong "tls.clientCA needs tls.secret, which holds it" }}
{{- end }}
{{- if and .rules .rulesConfigMap }}
{{- $wrong = append $wrong "rules and rulesConfigMap are both set: leave one of them away" }}
{{- end }}
{{- if gt (int .autoscaling.minReplicas) (int .autoscaling.maxReplicas) }}
{{- $wrong = append $wrong "autoscaling.minReplicas is more than autoscaling.maxReplicas" }}
{{- end }}
{{- end }}
{{- if $wrong }}{{ fail (printf "\n  - %s\n" (join "\n  - " $wrong)) }}{{ end }}
{{- end }}
