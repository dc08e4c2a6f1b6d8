{{- /*
Refuses a kind of the Prometheus Operator that the API server does not serve; the install would fail halfway. Takes a list of
the chart's context, the kind, and the value that needs it.
*/ -}}
{{- define "kube-cpg.served" -}}
{{- $root := index . 0 -}}
{{- $kind := index . 1 -}}
{{- if not (or $root.Values.monitoring.force ($root.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" $kind))) -}}
{{- fail (printf "%s is true, but the API server does not serve %s (monitoring.coreos.com/v1): install the Prometheus Operator first, or set monitoring.force=true if helm has no API server to ask, as in `helm template`" (index . 2) $kind) -}}
{{- end -}}
{{- end -}}

{{- /* The chart's labels and further ones; takes a list of the chart's context and the further labels. */ -}}
{{- define "kube-cpg.found" -}}
{{- $root := index . 0 -}}
{{- toYaml (merge (deepCopy (index . 1)) (include "kube-cpg.labels" $root | fromYaml)) -}}
{{- end -}}
