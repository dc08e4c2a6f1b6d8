{{- /*
All objects of one process except its roles; scheduler and operator differ only in values. Takes a dict of root (the chart's
context), part (its name), values, settings (the settings file as a dict), and for the webhook's server webhook (a dict of
port, secret, and the folder of the secret).
*/ -}}
{{- define "kube-cpg.process" -}}
{{- $root := .root -}}
{{- $values := .values -}}
{{- $settings := toYaml (mustMergeOverwrite (deepCopy .settings) (deepCopy $values.settings)) -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "kube-cpg.metadata" . | nindent 2 }}
  {{- with $root.Values.serviceAccount.annotations }}
  annotations: {{ toYaml . | nindent 4 }}
  {{- end }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "kube-cpg.metadata" . | nindent 2 }}
data:
  settings.yaml: |
    {{- $settings | nindent 4 }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "kube-cpg.metadata" . | nindent 2 }}
spec:
  replicas: {{ $values.replicas }}
  {{- if eq (toString $values.settings.leaderElect) "false" }}
  # Without leader election the old pod must end before the new one starts.
  strategy: { type: Recreate }
  {{- else if $values.hostNetwork }}
  # Two pods cannot use the same host port, so the old pod must end before the new one starts.
  strategy:
    rollingUpdate: { maxSurge: 0, maxUnavailable: 1 }
  {{- end }}
  selector:
    matchLabels:
      {{- include "kube-cpg.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- $labels := merge (dict "app.kubernetes.io/component" .part) $values.podLabels }}
        {{- include "kube-cpg.found" (list $root $labels) | nindent 8 }}
      annotations:
        # The settings file is read at the start only, so a change must create new pods.
        kube-cpg.dev/settings: {{ sha256sum $settings }}
        {{- with $values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "kube-cpg.part" . }}
      {{- $class := $values.priorityClassName | default (ternary (include "kube-cpg.class" $root) "" $root.Values.priorityClass.create) }}
      {{- with $class }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- include "kube-cpg.place" . | nindent 6 }}
      # Longer than a process needs to finish binds and status writes in progress.
      terminationGracePeriodSeconds: 30
      containers:
        - name: {{ .part }}
          {{- include "kube-cpg.container" $root | nindent 10 }}
          command: [cpg-{{ .part }}]
          args: [--config, /etc/kube-cpg/settings.yaml, --log-level, {{ $values.logLevel }}]
          {{- with $values.env }}
          env: {{ toYaml . | nindent 12 }}
          {{- end }}
          ports:
            - { name: http, containerPort: {{ $values.port }}, protocol: TCP }
            {{- with .webhook }}
            - { name: webhook, containerPort: {{ .port }}, protocol: TCP }
            {{- end }}
          # A replica is ready when its watches work; a standby is ready too, because it can take over at once.
          startupProbe:
            httpGet: { path: /healthz, port: http }
            periodSeconds: 1
            failureThreshold: 120
          livenessProbe:
            httpGet: { path: /healthz, port: http }
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet: { path: /readyz, port: http }
            periodSeconds: 5
            timeoutSeconds: 5
          resources: {{ toYaml $values.resources | nindent 12 }}
          volumeMounts:
            - { name: settings, mountPath: /etc/kube-cpg, readOnly: true }
            {{- with .webhook }}
            - { name: webhook, mountPath: {{ .folder }}, readOnly: true }
            {{- end }}
      volumes:
        - name: settings
          configMap: { name: {{ include "kube-cpg.part" . }} }
        {{- with .webhook }}
        - name: webhook
          secret: { secretName: {{ .secret }} }
        {{- end }}
      {{- with $values.affinity }}
      affinity: {{ toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "kube-cpg.selector" . | nindent 14 }}
        {{- with $values.topologySpreadConstraints }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "kube-cpg.metadata" . | nindent 2 }}
spec:
  clusterIP: None
  selector:
    {{- include "kube-cpg.selector" . | nindent 4 }}
  ports:
    - { name: http, port: {{ $values.port }}, targetPort: http, protocol: TCP }
{{- if $values.podDisruptionBudget }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "kube-cpg.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "kube-cpg.selector" . | nindent 6 }}
{{- end }}
{{- if $root.Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "kube-cpg.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "kube-cpg.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    - ports:
        - { port: http, protocol: TCP }
      {{- with $root.Values.networkPolicy.metricsFrom }}
      from: {{ toYaml . | nindent 8 }}
      {{- end }}
    {{- if .webhook }}
    # The address of the API server is not known here; the port requires TLS.
    - ports:
        - { port: webhook, protocol: TCP }
    {{- end }}
  egress:
    {{- include "kube-cpg.egress" $root | nindent 4 }}
{{- end }}
{{- end -}}

{{- /* Egress: the API server and DNS. */ -}}
{{- define "kube-cpg.egress" -}}
- ports:
    {{- range .Values.networkPolicy.apiServerPorts }}
    - { port: {{ . }}, protocol: TCP }
    {{- end }}
  {{- with .Values.networkPolicy.apiServerTo }}
  to: {{ toYaml . | nindent 4 }}
  {{- end }}
- ports:
    - { port: 53, protocol: UDP }
    - { port: 53, protocol: TCP }
{{- end -}}
