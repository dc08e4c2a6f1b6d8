{{- /*
The rights of a process: the lists in files/roles, for the operator also those of its integrations, and its lease. Takes a dict of root and part; `lease` if it has one;
`annotations` if it belongs to a hook.
*/ -}}
{{- define "kube-cpg.roles" -}}
{{- $namespaces := .root.Values.namespaces -}}
{{- $rules := printf "files/roles/%s.yaml" .part | .root.Files.Get | fromYaml -}}
{{- $own := include "kube-cpg.part" . -}}
{{- $everywhere := printf "%s:%s" .root.Release.Namespace $own -}}
{{- $cluster := $rules.cluster | default list -}}
{{- $granted := $rules.granted -}}
{{- if and (eq .part "operator") (or .root.Values.integrations .root.Values.customIntegrations) -}}
{{- $lists := .root.Files.Get "files/roles/integrations.yaml" | fromYaml -}}
{{- range prepend .root.Values.integrations "any" -}}
{{- $granted = concat $granted (get $lists .) -}}
{{- end -}}
{{- range .root.Values.customIntegrations -}}
{{- $granted = append $granted (dict "apiGroups" (list .group) "resources" (list .plural) "verbs" (list "list" "watch")) -}}
{{- end -}}
{{- end -}}
{{- if not $namespaces -}}
{{- $cluster = concat $cluster ($rules.whole | default list) $granted -}}
{{- end -}}
{{- include "kube-cpg.grant" (merge (dict "name" $everywhere "namespace" "" "rules" $cluster) .) }}
{{- range $namespaces }}
{{- include "kube-cpg.grant" (merge (dict "name" (printf "%s-objects" $own) "namespace" . "rules" $granted) $) }}
{{- end }}
{{- if and $rules.default $namespaces (not (has "default" $namespaces)) }}
{{- include "kube-cpg.grant" (merge (dict "name" (printf "%s-objects" $own) "namespace" "default" "rules" $rules.default) .) }}
{{- end }}
{{- if .lease }}
{{- $leases := dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") }}
{{- $create := merge (dict "verbs" (list "create")) $leases }}
{{- $keep := merge (dict "verbs" (list "get" "patch") "resourceNames" (list $own)) $leases }}
{{- include "kube-cpg.grant" (merge (dict "name" $own "namespace" .root.Release.Namespace "rules" (list $create $keep)) .) }}
{{- end }}
{{- end -}}

{{- /*
A role and its binding, for the cluster or for one namespace. Rules for the API group of the other flavour are left out, except
for priority classes, and except in the release, which also removes finalizers of the other flavour.
*/ -}}
{{- define "kube-cpg.grant" -}}
{{- $foreign := get (dict "crd" "scheduling.k8s.io" "native" "scheduling.cpg.dev") .root.Values.api | default "none" -}}
{{- $all := eq .part "release" -}}
{{- $kind := ternary "Role" "ClusterRole" (not (empty .namespace)) -}}
{{- $rules := list -}}
{{- range .rules -}}
{{- $groups := ternary .apiGroups (without .apiGroups $foreign) (or $all (has "priorityclasses" .resources)) -}}
{{- if $groups -}}
{{- $rules = append $rules (merge (dict "apiGroups" $groups) .) -}}
{{- end -}}
{{- end -}}
{{- if $rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata: {{- include "kube-cpg.grant-metadata" (merge (dict "weight" "-2") .) | nindent 2 }}
rules: {{- toYaml $rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata: {{- include "kube-cpg.grant-metadata" (merge (dict "weight" "-1") .) | nindent 2 }}
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: {{ $kind }}, name: {{ .name | quote }} }
subjects:
  - { kind: ServiceAccount, name: {{ include "kube-cpg.part" . }}, namespace: {{ .root.Release.Namespace }} }
{{- end }}
{{- end -}}

{{- define "kube-cpg.grant-metadata" -}}
name: {{ .name | quote }}
{{- with .namespace }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "kube-cpg.labels" .root | nindent 2 }}
  app.kubernetes.io/component: {{ .part }}
{{- with .annotations }}
annotations: {{ toYaml (merge (dict "helm.sh/hook-weight" $.weight) .) | nindent 2 }}
{{- end }}
{{- end -}}
