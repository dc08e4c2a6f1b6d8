{{- /*
What a process may do, in three parts: `cluster` rules for the whole cluster, `granted` rules for the namespaces that are
ours to write in, and the lease in its own namespace. Given a dict of root, part, cluster and granted (lists of rules).
*/ -}}
{{- define "kube-cpg.roles" -}}
{{- $root := .root -}}
{{- $self := . -}}
{{- $subject := dict "kind" "ServiceAccount" "name" (include "kube-cpg.part" .) "namespace" $root.Release.Namespace -}}
{{- $everywhere := printf "%s:%s" $root.Release.Namespace (include "kube-cpg.part" .) -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $everywhere }}
  labels:
    {{- include "kube-cpg.labels" $root | nindent 4 }}
rules:
  {{- toYaml (ternary .cluster (concat .cluster .granted) (not (empty $root.Values.namespaces))) | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $everywhere }}
  labels:
    {{- include "kube-cpg.labels" $root | nindent 4 }}
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $everywhere | quote }} }
subjects:
  - {{ toJson $subject }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  {{- include "kube-cpg.metadata" . | nindent 2 }}
rules:
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [create]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [{{ include "kube-cpg.part" . }}]
    verbs: [get, patch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- include "kube-cpg.metadata" . | nindent 2 }}
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ include "kube-cpg.part" . }} }
subjects:
  - {{ toJson $subject }}
{{- range $root.Values.namespaces }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ include "kube-cpg.part" $self }}-objects
  namespace: {{ . }}
  labels:
    {{- include "kube-cpg.labels" $root | nindent 4 }}
rules:
  {{- toYaml $self.granted | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ include "kube-cpg.part" $self }}-objects
  namespace: {{ . }}
  labels:
    {{- include "kube-cpg.labels" $root | nindent 4 }}
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ include "kube-cpg.part" $self }}-objects }
subjects:
  - {{ toJson $subject }}
{{- end }}
{{- end -}}
