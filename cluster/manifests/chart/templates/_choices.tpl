{{/* Which form of admission is installed: v1 or v1beta1 of the policies, or webhook. Without a cluster to ask, as
     in helm template, the version tells. */}}
{{- define "mgpu.admission" -}}
{{- $versions := .Capabilities.APIVersions -}}
{{- $policy := "" -}}
{{- if or ($versions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy") (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version) -}}
{{- $policy = "v1" -}}
{{- else if $versions.Has "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy" -}}
{{- $policy = "v1beta1" -}}
{{- end -}}
{{- if eq .Values.admission "webhook" -}}
webhook
{{- else if $policy -}}
{{- $policy -}}
{{- else if eq .Values.admission "policy" -}}
{{- fail "mgpu: this cluster has no MutatingAdmissionPolicy, which came with 1.36 and is behind a gate in 1.34; set admission=webhook" -}}
{{- else -}}
webhook
{{- end -}}
{{- end -}}

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

{{- define "mgpu.nodeConfig" -}}
{{- if .Values.aliyunMib }}aliyun_unit = "mib"
{{ end }}{{ .Values.nodeConfig }}
{{- end -}}
