"""As much of an API server as Helm asks of a cluster before it renders a chart: its version and its kinds."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# (group and version, kinds; those of a namespace end with "+")
_KINDS = {
    "v1": "ServiceAccount+ ConfigMap+ Service+",
    "apps/v1": "DaemonSet+ Deployment+",
    "node.k8s.io/v1": "RuntimeClass",
    "policy/v1": "PodDisruptionBudget+",
    "rbac.authorization.k8s.io/v1": "Role+ RoleBinding+ ClusterRole ClusterRoleBinding",
    "admissionregistration.k8s.io/v1": "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding"
    " MutatingWebhookConfiguration ValidatingWebhookConfiguration",
}
Object = dict[str, Any]


@contextmanager
def cluster(minor: str) -> Iterator[Object]:
    """A kubeconfig for a cluster 1.`minor` that has no object."""
    answers = _answers(minor)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # An empty document of OpenAPI 2 in protobuf's form: a schema of nothing.
            path = self.path.partition("?")[0]
            body = b"" if path == "/openapi/v2" else json.dumps(answers.get(path, _NOT_FOUND)).encode()
            self.send_response(200 if path == "/openapi/v2" or path in answers else 404)
            self.send_header("Content-Type", "application/json" if body else "application/octet-stream")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        yield {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": address}}],
            "users": [{"name": "c", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            "current-context": "c",
        }
    finally:
        server.shutdown()
        server.server_close()


_NOT_FOUND = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}


def _answers(minor: str) -> dict[str, Object]:
    """By path. A vendor's suffixes are in both version fields, as clusters for hire have them."""
    groups: dict[str, list[str]] = {}
    for version in _KINDS:
        group, slash, _ = version.partition("/")
        if slash:
            groups.setdefault(group, []).append(version)
    return {
        "/version": {"major": "1", "minor": f"{minor}+", "gitVersion": f"v1.{minor}.9-vendor.1"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {
            "kind": "APIGroupList",
            "groups": [
                {
                    "name": name,
                    "versions": [_version(each) for each in found],
                    "preferredVersion": _version(found[0]),
                }
                for name, found in groups.items()
            ],
        },
        **{
            f"/api{'s' if '/' in version else ''}/{version}": {
                "kind": "APIResourceList",
                "groupVersion": version,
                "resources": [_resource(kind) for kind in names.split()],
            }
            for version, names in _KINDS.items()
        },
    }


def _version(group: str) -> Object:
    return {"groupVersion": group, "version": group.rpartition("/")[2]}


def _resource(kind: str) -> Object:
    name = kind.removesuffix("+")
    plural = name.lower()
    plural = (
        plural[:-1] + "ies" if plural.endswith("y") else plural + ("es" if plural.endswith("s") else "s")
    )
    return {
        "name": plural,
        "singularName": "",
        "kind": name,
        "namespaced": kind != name,
        "verbs": ["get", "create"],
    }
