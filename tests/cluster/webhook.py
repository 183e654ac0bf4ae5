"""The webhook's own program between an API server in memory and its callers."""

import base64
import http.client
import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster.admission import webhooks
from cluster.admission.names import Settings
from cluster.admission.trust import HOSTS
from tests.cluster.api_server import ApiServer
from tests.support.waiting import until

Object = dict[str, Any]
_PATH = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{_PATH}/mutatingwebhookconfigurations/{webhooks.CONFIGURATION}"
VALIDATING = f"{_PATH}/validatingwebhookconfigurations/{webhooks.CONFIGURATION}"
SECRET = f"/api/v1/namespaces/{webhooks.NAMESPACE}/secrets/{webhooks.NAME}"


def configure(api: ApiServer) -> None:
    for each in webhooks.objects(Settings()):
        if each["kind"].endswith("WebhookConfiguration"):
            path = MUTATING if each["kind"].startswith("Mutating") else VALIDATING
            api.put(path, yaml.safe_load(yaml.safe_dump(each)))


def bundles(api: ApiServer) -> list[bytes]:
    """What each webhook's calls are trusted by."""
    found = []
    for path in (MUTATING, VALIDATING):
        configuration = api.there(path)
        found += [
            base64.b64decode(each["clientConfig"].get("caBundle", "")) for each in configuration["webhooks"]
        ]
    return found


@dataclass
class Webhook:
    api: ApiServer
    port: int
    process: subprocess.Popen[str]

    def call(
        self, method: str, path: str, body: bytes = b"", bundle: bytes | None = None
    ) -> tuple[int, str]:
        """As the API server calls: by the Service's name, trusting the configuration's authority alone."""
        trusted = bundles(self.api)[0] if bundle is None else bundle
        if not trusted:
            raise ConnectionError("no authority yet")
        context = ssl.create_default_context(cadata=trusted.decode())
        with socket.create_connection(("127.0.0.1", self.port), 10) as plain:
            with context.wrap_socket(plain, server_hostname=HOSTS[0]) as secure:
                connection = http.client.HTTPConnection(HOSTS[0])
                connection.sock = secure
                connection.request(method, path, body)
                answer = connection.getresponse()
                return answer.status, answer.read().decode()

    def review(self, path: str, body: bytes) -> Object:
        status, text = self.call("POST", path, body)
        assert status == 200, text
        answer: Object = json.loads(text)["response"]
        return answer

    def is_ready(self) -> bool:
        assert self.process.poll() is None, "the webhook ended"
        try:
            return self.call("GET", "/readyz")[0] == 200
        except OSError:
            return False


@contextmanager
def started(api: ApiServer, folder: Path, port: int = 0) -> Iterator[subprocess.Popen[str]]:
    """The program; what it says is in the folder's webhook.log."""
    argv = ["--host=127.0.0.1", f"--port={port}", f"--kubeconfig={api.kubeconfig(folder)}"]
    with (folder / "webhook.log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-m", "cluster.admission", *argv], stderr=log, text=True)
    with process:
        try:
            yield process
        finally:
            process.terminate()
            assert process.wait(20) == 0


@contextmanager
def running(api: ApiServer, folder: Path) -> Iterator[Webhook]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with started(api, folder, port) as process:
        made = Webhook(api, port, process)
        until(made.is_ready, "the webhook is ready")
        yield made
