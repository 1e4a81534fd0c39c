{{- define "muster.fullname" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 53 | trimSuffix "-" }}
{{- end }}

{{- define "muster.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "muster.selector" . }}
{{- end }}

{{- /* The Service of the webhook selects by app.kubernetes.io/name, too. */}}
{{- define "muster.selector" -}}
app.kubernetes.io/name: muster
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "muster.dashboardSelector" -}}
app.kubernetes.io/name: muster-dashboard
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "muster.externalSelector" -}}
app.kubernetes.io/name: muster-externalgrpc
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "muster.image" -}}
{{- if .image.digest }}{{ .image.repository }}@{{ .image.digest }}
{{- else }}{{ .image.repository }}:{{ .image.tag | default .appVersion }}
{{- end }}
{{- end }}

{{- /* policies, webhook or controllers */}}
{{- define "muster.mutations" -}}
{{- if ne .Values.mutations "auto" }}{{ .Values.mutations }}
{{- else if semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version }}policies
{{- else }}webhook
{{- end }}
{{- end }}

{{- /* A file of files/rbac or files/policies is for the half or part of this value; for all where it is not here. */}}
{{- define "muster.owners" -}}
rbac/provisioning.yaml: provisioning
policies/nodes.yaml: provisioning
policies/pods.yaml: provisioning
policies/requests.yaml: provisioning
policies/rights-nodes.yaml: provisioning
rbac/kinds.yaml: queueing
rbac/queueing.yaml: queueing
policies/gangs.yaml: queueing
policies/gated-pods.yaml: queueing
policies/jobs.yaml: queueing
policies/places.yaml: queueing
policies/queues.yaml: queueing
policies/quotas.yaml: queueing
policies/rights-pods.yaml: queueing
policies/rights-queues.yaml: queueing
policies/workloads.yaml: queueing
rbac/kwok.yaml: kwok
rbac/dashboard.yaml: dashboard
rbac/queueing-dashboard.yaml: queueing-dashboard
rbac/users.yaml: users
{{- end }}

{{- /* The rules of a role without the rights to write what a dry run does not, as in deploy/dryrun.go. */}}
{{- define "muster.observing" -}}
rules:
{{- range $rule := .rules }}
{{- $writes := not (not $rule.nonResourceURLs) }}
{{- range $rule.resources }}
{{- $writes = or $writes (hasSuffix "reviews" .) (has . (list "leases" "events" "nodegroups" "nodegroups/status"
  "capacitypolicies/status" "provisioningrequests/status")) }}
{{- end }}
{{- $verbs := list }}
{{- range $rule.verbs }}
{{- if or $writes (has . (list "get" "list" "watch")) }}{{ $verbs = append $verbs . }}{{ end }}
{{- end }}
{{- if $verbs }}
- {{- set $rule "verbs" $verbs | toYaml | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- define "muster.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "muster.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
