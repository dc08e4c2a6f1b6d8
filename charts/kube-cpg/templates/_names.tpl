{{- define "kube-cpg.name" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* The PriorityClass of the processes. It has no namespace, so its name contains that of the release. */ -}}
{{- define "kube-cpg.class" -}}
{{ include "kube-cpg.name" . }}.{{ .Release.Namespace }}
{{- end -}}

{{- define "kube-cpg.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* The templates below concern one process and take a dict of root (the chart's context), part (its name) and values. */ -}}

{{- define "kube-cpg.part" -}}
{{ include "kube-cpg.name" .root }}-{{ .part }}
{{- end -}}

{{- define "kube-cpg.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "kube-cpg.metadata" -}}
name: {{ include "kube-cpg.part" . }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "kube-cpg.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- /* The part of the pod spec that all pods of the chart share: user, image pull secrets, placement. */ -}}
{{- define "kube-cpg.place" -}}
hostNetwork: {{ .values.hostNetwork }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: { type: RuntimeDefault }
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The image, without any privilege in the container. */ -}}
{{- define "kube-cpg.container" -}}
image: "{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end -}}
