{{- /* The Secrets that are mounted, as a JSON list of {volume, secret}; what of them is read is in envoy-rls.env. */}}
{{- define "envoy-rls.secrets" -}}
{{- $secrets := list }}
{{- with .Values.tls.secret }}{{ $secrets = append $secrets (dict "volume" "tls" "secret" .) }}{{ end }}
{{- with .Values.redis.authSecret }}{{ $secrets = append $secrets (dict "volume" "redis-auth" "secret" .) }}{{ end }}
{{- with .Values.redis.sentinelAuthSecret }}{{ $secrets = append $secrets (dict "volume" "sentinel-auth" "secret" .) }}{{ end }}
{{- with .Values.redis.tlsSecret }}{{ $secrets = append $secrets (dict "volume" "redis-tls" "secret" .) }}{{ end }}
{{- with .Values.admin.tokenSecret }}{{ $secrets = append $secrets (dict "volume" "admin" "secret" .) }}{{ end }}
{{- with .Values.hashKeySecret }}{{ $secrets = append $secrets (dict "volume" "hash-key" "secret" .) }}{{ end }}
{{- $secrets | toJson }}
{{- end }}

{{- define "envoy-rls.env" -}}
{{- $env := list }}
{{- with .Values.tls }}
{{- if .secret }}
{{- $env = concat $env (list
      (dict "name" "GRPC_SERVER_USE_TLS" "value" "true")
      (dict "name" "GRPC_SERVER_TLS_CERT" "value" "/etc/envoy-rls/tls/tls.crt")
      (dict "name" "GRPC_SERVER_TLS_KEY" "value" "/etc/envoy-rls/tls/tls.key")) }}
{{- end }}
{{- if .clientCA }}
{{- $env = append $env (dict "name" "GRPC_CLIENT_TLS_CACERT" "value" "/etc/envoy-rls/tls/ca.crt") }}
{{- end }}
{{- end }}
{{- with .Values.redis }}
{{- if .authSecret }}
{{- $env = append $env (dict "name" "REDIS_AUTH_FILE" "value" "/etc/envoy-rls/redis-auth/auth") }}
{{- end }}
{{- if .sentinelAuthSecret }}
{{- $env = append $env (dict "name" "REDIS_SENTINEL_AUTH_FILE" "value" "/etc/envoy-rls/sentinel-auth/auth") }}
{{- end }}
{{- if .tlsSecret }}
{{- $env = concat $env (list
      (dict "name" "REDIS_TLS" "value" "true")
      (dict "name" "REDIS_TLS_CACERT" "value" "/etc/envoy-rls/redis-tls/ca.crt")) }}
{{- end }}
{{- if .tlsClientCertificate }}
{{- $env = concat $env (list
      (dict "name" "REDIS_TLS_CLIENT_CERT" "value" "/etc/envoy-rls/redis-tls/tls.crt")
      (dict "name" "REDIS_TLS_CLIENT_KEY" "value" "/etc/envoy-rls/redis-tls/tls.key")) }}
{{- end }}
{{- end }}
{{- with .Values.admin }}
{{- if .fleet }}
{{- $env = append $env (dict "name" "DEBUG_HOST" "value" "0.0.0.0") }}
{{- end }}
{{- if .tokenSecret }}
{{- $env = append $env (dict "name" "ADMIN_TOKEN_FILE" "value" "/etc/envoy-rls/admin/token") }}
{{- end }}
{{- end }}
{{- if .Values.hashKeySecret }}
{{- $env = append $env (dict "name" "HASH_KEY_FILE" "value" "/etc/envoy-rls/hash-key/hash-key") }}
{{- end }}
{{- with concat $env .Values.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
