{{- /*
All that a process of ours is, apart from what it may do: the scheduler's and the operator's differ in values alone.
Given a dict of root (the chart's context), part (its name), values, settings (a dict, the settings file), and, for who
answers a webhook, webhook (a dict of port, secret, and folder for the secret).
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
  # Nobody elects a leader, so an old one has to go before a new one comes.
  strategy: { type: Recreate }
  {{- else if $values.hostNetwork }}
  # Two pods cannot have one port of a node, so an old one has to go before a new one comes.
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
        # A changed settings file makes new pods: it is read at the start only.
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
      # Longer than a process takes to finish the binds and reports that are under way.
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
          # Ready is who hears the API server, and a standby is: it takes over from its leader at once.
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
    # The API server's own address is not known here; who asks without a question is turned away by TLS.
    - ports:
        - { port: webhook, protocol: TCP }
    {{- end }}
  egress:
    {{- include "kube-cpg.egress" $root | nindent 4 }}
{{- end }}
{{- end -}}

{{- /* Whom our processes talk to: the API server, and who tells where that is. */ -}}
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
