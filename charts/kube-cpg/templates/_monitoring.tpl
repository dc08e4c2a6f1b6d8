{{- /*
Fails where the API server does not serve a kind of the Prometheus Operator: an install would fail halfway. Given a list of
the chart's context, the kind, and the value that asks for it.
*/ -}}
{{- define "kube-cpg.served" -}}
{{- $root := index . 0 -}}
{{- $kind := index . 1 -}}
{{- if not (or $root.Values.monitoring.force ($root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" $kind))) -}}
{{- fail (printf "%s is true, but the API server serves no %s (monitoring.coreos.com/v1). Install the Prometheus Operator first; where helm cannot ask an API server, as in `helm template`, set monitoring.force=true" (index . 2) $kind) -}}
{{- end -}}
{{- end -}}

{{- /* The labels of an object that others find by labels; given a list of the chart's context and theirs. */ -}}
{{- define "kube-cpg.found" -}}
{{- $root := index . 0 -}}
{{- toYaml (merge (deepCopy (index . 1)) (include "kube-cpg.labels" $root | fromYaml)) -}}
{{- end -}}
