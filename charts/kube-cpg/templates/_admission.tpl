{{- /* Whether the pods of a template join groups, as a CEL expression. */ -}}
{{- define "kube-cpg.joins" -}}
{{ . }}.?metadata.?labels[?'scheduling.cpg.dev/adopt'].or({{ . }}.?metadata.?annotations[?'scheduling.cpg.dev/adopt']).orValue('') != 'false'
{{- end -}}

{{- /* The values of some labels of a pod, as a CEL list. */ -}}
{{- define "kube-cpg.values" -}}
['{{ join "', '" . }}'].map(label, variables.labels[?label].orValue(''))
{{- end -}}

{{- /* A policy for the templates of a kind of owner. Takes a dict of root, group, resource and the expression of its patch. */ -}}
{{- define "kube-cpg.fillPolicy" -}}
{{- $rule := dict "apiGroups" (list .group) "apiVersions" (list "*") "resources" (list .resource) "operations" (list "CREATE" "UPDATE") }}
{{- include "kube-cpg.mutatingPolicy" (dict "root" .root "part" .resource "rule" $rule "variables" list "expressions" (list .expression)) }}
{{- end -}}

{{- /*
The policy for pods. `group` is the derived group of a pod: the rules are those of cpg_api.integrations, for the integrations
that are on.
*/ -}}
{{- define "kube-cpg.podPolicy" -}}
{{- $on := .Values.integrations }}
{{- $name := .Values.scheduler.schedulerName }}
{{- $rule := dict "apiGroups" (list "") "apiVersions" (list "v1") "resources" (list "pods") "operations" (list "CREATE") }}
{{- $none := "[]" }}
{{- $jobset := "variables.jobset.join('-') == variables.owner.name ? ['jobset'] + variables.jobset : []" }}
{{- $lws := `
  !(variables.owner.name in [variables.lws[0], variables.lws.join('-')]) ? []
  : !('leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology' in variables.annotations) ? ['lws', variables.lws[0], 'replica', variables.lws[1]]
  : !('leaderworkerset.sigs.k8s.io/subgroup-index' in variables.labels) ? ['lws', variables.lws[0], 'leader', variables.lws[1]]
  : ['lws', variables.lws[0], 'subgroup', variables.lws[1], string(variables.labels['leaderworkerset.sigs.k8s.io/subgroup-index'])]` }}
{{- $ray := "variables.ray[0] == variables.owner.name ? ['raycluster', variables.ray[0], variables.ray[1].lowerAscii()] : []" }}
{{- $isJob := "variables.owner.apiVersion.startsWith('batch/') && variables.owner.kind == 'Job'" }}
{{- $isSet := "variables.owner.apiVersion.startsWith('apps/') && variables.owner.kind == 'StatefulSet'" }}
{{- $isRay := "variables.owner.apiVersion.startsWith('ray.io/') && variables.owner.kind == 'RayCluster'" }}
{{- $parts := printf "variables.isGang ? ['job', string(variables.owner.name), 'pods']\n  : %s ? (%s)\n  : %s ? (%s)\n  : %s ? (%s) : []" $isJob (has "jobset" $on | ternary $jobset $none) $isSet (has "leaderworkerset" $on | ternary $lws $none) $isRay (has "raycluster" $on | ternary $ray $none) }}
{{- $isGang := printf `%s && !('jobset.sigs.k8s.io/jobset-name' in variables.labels)
  && ('batch.kubernetes.io/job-completion-index' in variables.labels
  || 'batch.kubernetes.io/job-completion-index' in variables.annotations || variables.gang == 'true')` $isJob }}
{{- $group := `
  variables.adopt == 'false' || variables.parts.join('.').size() > 253 ? ''
  : variables.isGang || variables.parts.all(part, part.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')) ? variables.parts.join('.') : ''` }}
{{- $variables := list
  (dict "name" "labels" "expression" "object.metadata.?labels.orValue({})")
  (dict "name" "annotations" "expression" "object.metadata.?annotations.orValue({})")
  (dict "name" "adopt" "expression" "variables.labels[?'scheduling.cpg.dev/adopt'].or(variables.annotations[?'scheduling.cpg.dev/adopt']).orValue('')")
  (dict "name" "gang" "expression" "variables.labels[?'scheduling.cpg.dev/gang'].or(variables.annotations[?'scheduling.cpg.dev/gang']).orValue('')")
  (dict "name" "owners" "expression" "object.metadata.?ownerReferences.orValue([]).filter(one, one.?controller.orValue(false))")
  (dict "name" "owner" "expression" "variables.owners.size() > 0 ? variables.owners[0] : {'apiVersion': '', 'kind': '', 'name': ''}")
  (dict "name" "jobset" "expression" (include "kube-cpg.values" (list "jobset.sigs.k8s.io/jobset-name" "jobset.sigs.k8s.io/replicatedjob-name" "jobset.sigs.k8s.io/job-index")))
  (dict "name" "lws" "expression" (include "kube-cpg.values" (list "leaderworkerset.sigs.k8s.io/name" "leaderworkerset.sigs.k8s.io/group-index")))
  (dict "name" "ray" "expression" (include "kube-cpg.values" (list "ray.io/cluster" "ray.io/group")))
  (dict "name" "isGang" "expression" (has "job" $on | ternary $isGang "false"))
  (dict "name" "parts" "expression" $parts)
  (dict "name" "group" "expression" $group) }}
{{- $custom := list }}
{{- range .Values.customIntegrations }}
{{- $custom = append $custom (printf "'%s'" .kind) }}
{{- end }}
{{- $fill := printf `
  object.spec.schedulerName == 'default-scheduler' && object.spec.?nodeName.orValue('') == ''
  && variables.adopt != 'false' && variables.gang != 'true' && variables.group == ''
  && !(variables.owner.kind in [%s])
  ? [JSONPatch{op: 'add', path: '/spec/schedulerName', value: '%s'}] : []` (join ", " $custom) $name }}
{{- $join := printf `
  object.spec.schedulerName == '%s' && variables.group != '' && !has(object.spec.schedulingGroup)
  && !('scheduling.cpg.dev/pod-group' in variables.labels) && !('scheduling.cpg.dev/pod-group' in variables.annotations)
  && !('disaggregatedset.x-k8s.io/name' in variables.labels)
  ? [JSONPatch{op: 'add', path: '/spec/schedulingGroup', value: {'podGroupName': variables.group}}] : []` $name }}
{{- $expressions := eq .Values.api "native" | ternary (list $fill $join) (list $fill) }}
{{- include "kube-cpg.mutatingPolicy" (dict "root" . "part" "pods" "rule" $rule "variables" $variables "expressions" $expressions) }}
{{- end -}}

{{- /*
A policy and its binding to the labelled namespaces. Takes a dict of root, part (the end of its name), rule, variables and the
expressions of its patches. Pods of the chart itself cannot wait for our scheduler.
*/ -}}
{{- define "kube-cpg.mutatingPolicy" }}
{{- $name := printf "%s-%s.%s" (include "kube-cpg.name" .root) .part .root.Release.Namespace }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata:
  name: {{ $name }}
  labels:
    {{- include "kube-cpg.labels" .root | nindent 4 }}
spec:
  failurePolicy: Ignore
  reinvocationPolicy: IfNeeded
  matchConstraints:
    resourceRules: [{{ toJson .rule }}]
  {{- with .variables }}
  variables:
    {{- range . }}
    - name: {{ .name }}
      expression: >-
        {{- .expression | trim | nindent 8 }}
    {{- end }}
  {{- end }}
  mutations:
    {{- range .expressions }}
    - patchType: JSONPatch
      jsonPatch:
        expression: >-
          {{- . | trim | nindent 10 }}
    {{- end }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}
  labels:
    {{- include "kube-cpg.labels" .root | nindent 4 }}
spec:
  policyName: {{ $name }}
  matchResources:
    namespaceSelector:
      matchLabels: { {{ .root.Values.admissionPolicy.namespaceLabel }}: "true" }
      matchExpressions:
        - { key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, {{ .root.Release.Namespace }}] }
        {{- with .root.Values.namespaces }}
        - { key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }} }
        {{- end }}
{{- end -}}
