"""Values of the chart, made from parts of a plain manifest."""

from typing import NamedTuple

from cluster.admission.webhooks import IMAGE


class Edit(NamedTuple):
    """One text, wherever it is in a manifest, and what the template has in its place."""

    plain: str
    template: str


class Lost(Exception):
    """A manifest has no longer what an edit looks for."""


_PULL_SECRETS = '      {{- include "mgpu.pullSecrets" . }}\n'
_IMAGE = Edit(f"image: {IMAGE}\n", "image: {{ .Values.image }}\n")
_NODES = Edit(
    '        mgpu.dev/node: "true"\n',
    """\
        mgpu.dev/node: "true"
        {{- with .Values.nodeSelector }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
""",
)
_TOLERATIONS = Edit(
    "        - operator: Exists\n",
    "        {{- toYaml .Values.tolerations | nindent 8 }}\n",
)
_AGENT_PULLS = Edit("      initContainers:\n", _PULL_SECRETS + "      initContainers:\n")
# A new text of node.toml is put on the nodes by new pods.
_NODE_CONFIG = Edit(
    "        app.kubernetes.io/component: node\n    spec:\n",
    """\
        app.kubernetes.io/component: node
      {{- with include "mgpu.nodeConfigs" . }}
      annotations:
        mgpu.dev/node-config: {{ . | sha256sum }}
      {{- end }}
    spec:
""",
)


_TLS = ".Values.metrics.tlsSecret"
_TLS_OPTION = Edit(
    "          ports:\n            - name: metrics\n",
    f"""\
            {{{{- if {_TLS} }}}}
            - --metrics-tls=/etc/mgpu-metrics
            {{{{- end }}}}
          ports:
            - name: metrics
""",
)
_TLS_MOUNT = Edit(
    "            - name: cdi\n              mountPath: /var/run/cdi\n",
    f"""\
            - name: cdi
              mountPath: /var/run/cdi
            {{{{- if {_TLS} }}}}
            - name: metrics-tls
              mountPath: /etc/mgpu-metrics
              readOnly: true
            {{{{- end }}}}
""",
)
_TLS_VOLUME = Edit(
    "        - name: cdi\n          hostPath:\n",
    f"""\
        {{{{- with {_TLS} }}}}
        - name: metrics-tls
          secret:
            secretName: {{{{ . }}}}
        {{{{- end }}}}
        - name: cdi
          hostPath:
""",
)


def _choice(option: str, condition: str) -> Edit:
    """A line that the plain manifest has as a comment."""
    line = f"            # - {option}\n"
    return Edit(
        line, f"            {{{{- if {condition} }}}}\n            - {option}\n            {{{{- end }}}}\n"
    )


EDITS: dict[str, tuple[Edit, ...]] = {
    "agent.yaml": (_IMAGE, _NODES, _TOLERATIONS, _AGENT_PULLS),
    "node.yaml": (
        _IMAGE,
        _NODES,
        _TOLERATIONS,
        _AGENT_PULLS,
        _NODE_CONFIG,
        _choice("--dra", ".Values.dra"),
        _choice("--hami", ".Values.hami"),
        _choice("--metrics=0.0.0.0:9411", ".Values.metrics.enabled"),
        _TLS_OPTION,
        _TLS_MOUNT,
        _TLS_VOLUME,
    ),
    "uninstall.yaml": (_IMAGE, _TOLERATIONS, _AGENT_PULLS),
    "runtimeclass.yaml": (),
    "scheduler.yaml": (
        Edit("image: mgpu-scheduler:0.1.0\n", 'image: {{ include "mgpu.extender" . }}\n'),
        Edit(
            "image: registry.k8s.io/kube-scheduler:v1.34.0\n",
            'image: {{ include "mgpu.kubeScheduler" . }}\n',
        ),
        Edit("  replicas: 2\n", "  replicas: {{ .Values.scheduler.replicas }}\n"),
        Edit("--score=fgd\n", "--score={{ .Values.scheduler.score }}\n"),
        Edit(
            "      serviceAccountName: mgpu-scheduler\n",
            "      serviceAccountName: mgpu-scheduler\n" + _PULL_SECRETS,
        ),
    ),
    "claims/deviceclasses.yaml": (),
    "admission.yaml": (
        _IMAGE,
        Edit(
            "      serviceAccountName: mgpu-admission\n",
            "      serviceAccountName: mgpu-admission\n" + _PULL_SECRETS,
        ),
    ),
}


def edited(name: str, text: str) -> str:
    """Lost: an edit has nothing to do, so that the chart would lack a value without a word."""
    for edit in EDITS.get(name, ()):
        if edit.plain not in text:
            raise Lost(f"{name} has no {edit.plain.strip()!r}")
        text = text.replace(edit.plain, edit.template)
    return text
