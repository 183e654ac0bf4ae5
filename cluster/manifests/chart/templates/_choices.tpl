{{/* kube-scheduler as old as the cluster: suffixes of those who offer clusters are no versions of it. */}}
{{- define "mgpu.kubeScheduler" -}}
{{- $minor := regexFind "^[0-9]+" .Capabilities.KubeVersion.Minor -}}
{{- .Values.scheduler.image | default (printf "registry.k8s.io/kube-scheduler:v%s.%s.0" .Capabilities.KubeVersion.Major $minor) -}}
{{- end -}}

{{/* The second image lies where the first one does, unless it is named. */}}
{{- define "mgpu.extender" -}}
{{- $beside := regexReplaceAll "mgpu(:[^/:@]+)?$" .Values.image "mgpu-scheduler${1}" -}}
{{- if .Values.scheduler.extenderImage -}}
{{- .Values.scheduler.extenderImage -}}
{{- else if eq $beside .Values.image -}}
{{- fail "mgpu: image is not called mgpu and has no tag to go by; set scheduler.extenderImage too" -}}
{{- else -}}
{{- $beside -}}
{{- end -}}
{{- end -}}

{{/* Of a pod's template. */}}
{{- define "mgpu.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
{{- end }}
{{- end -}}

{{/* node.toml of all nodes and NODE.toml of those that have their own, as a ConfigMap's data. */}}
{{- define "mgpu.nodeConfigs" -}}
{{- $unit := ternary "aliyun_unit = \"mib\"\n" "" .Values.aliyunMib -}}
{{- $all := dict -}}
{{- with printf "%s%s" $unit .Values.nodeConfig }}{{ $_ := set $all "node.toml" . }}{{ end -}}
{{- range $node, $text := .Values.nodeConfigs }}{{ $_ := set $all (printf "%s.toml" $node) (printf "%s%s" $unit $text) }}{{ end -}}
{{- with $all }}{{ toYaml . }}{{ end -}}
{{- end -}}
