"""The webhook's server: its certificates, its answers, and what it makes of what is no review."""

import json
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.admission import webhooks
from cluster.admission.server import REVIEW_MAX_BYTES
from tests.cluster import admission_support as admission
from tests.cluster import api_server, webhook
from tests.cluster.api_server import ApiServer, Trouble
from tests.cluster.webhook import Webhook
from tests.support.commands import attempt
from tests.support.waiting import until

MEMORY_MAX_KIB = 100 << 10
ASKING = next(
    case for case in admission.cases() if case.name.startswith("annotations without limits become")
)


@pytest.fixture(scope="module")
def api() -> Iterator[ApiServer]:
    with api_server.running() as running:
        webhook.configure(running)
        yield running


@pytest.fixture(scope="module")
def server(api: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    with webhook.running(api, tmp_path_factory.mktemp("webhook")) as running:
        yield running


def test_answers_are_those_of_the_review(server: Webhook) -> None:
    body = admission.request(ASKING.manifest, None)
    changed = server.review("/mutate", body)
    assert changed["allowed"]
    assert {each["path"] for each in admission.patch(changed)} >= {"/spec/runtimeClassName"}
    refused = server.review("/validate", admission.request(admission.misspelt(), None))
    assert not refused["allowed"]
    assert refused["status"]["message"].startswith("mgpu: ")
    assert "\n" not in refused["status"]["message"]


def test_every_webhook_of_both_configurations_trusts_it(server: Webhook) -> None:
    found = webhook.bundles(server.api)
    assert len(found) == 6
    assert len(set(found)) == 1


def test_stranger_is_not_trusted(server: Webhook, tmp_path: Path) -> None:
    with api_server.running() as other:
        webhook.configure(other)
        with webhook.running(other, tmp_path):
            [theirs] = set(webhook.bundles(other))
    with pytest.raises(ssl.SSLCertVerificationError):
        server.call("GET", "/readyz", bundle=theirs)


def test_replicas_sign_with_one_authority(server: Webhook, tmp_path: Path) -> None:
    before = webhook.bundles(server.api)
    with webhook.running(server.api, tmp_path) as second:
        assert second.call("GET", "/readyz") == server.call("GET", "/readyz") == (200, "ok\n")
        assert webhook.bundles(server.api) == before


def test_replicas_that_start_at_once_agree(tmp_path: Path) -> None:
    with api_server.running() as both:
        webhook.configure(both)
        # Whoever asks first writes last.
        both.troubles.append(Trouble(lambda method, path: method == "POST", delay_s=0.3, times=1))
        folders = [tmp_path / name for name in ("one", "two")]
        for folder in folders:
            folder.mkdir()
        with webhook.running(both, folders[0]) as one, webhook.running(both, folders[1]) as two:
            assert one.call("GET", "/readyz")[0] == two.call("GET", "/readyz")[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[" * 100_000,
        b"[]",
        b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview"}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{}}',
        b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":null}}',
        admission.request({"apiVersion": "v1", "kind": "Pod", "metadata": [], "spec": {}}, None),
        admission.request({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [None]}}, None),
        admission.request(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"annotations": {"a": None}}, "spec": {}}, None
        ),
        admission.request({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": 1}}, None),
    ],
    ids=range(11),
)
@pytest.mark.parametrize("path", ["/mutate", "/validate"])
def test_body_that_is_no_review_is_refused_in_one_line(server: Webhook, path: str, body: bytes) -> None:
    status, text = server.call("POST", path, body)
    assert status == 400
    assert text.startswith("mgpu: this admission review cannot be read: ")
    assert text.count("\n") == 1


def test_review_that_is_too_large_is_refused_in_one_line(server: Webhook) -> None:
    status, text = server.call("POST", "/validate", b" " * (REVIEW_MAX_BYTES + 1))
    assert status == 413
    assert text.startswith("mgpu: this admission review has more than ")
    assert text.count("\n") == 1


def test_pod_as_large_as_an_api_server_takes_is_answered(server: Webhook) -> None:
    large = admission.large_pod(3 << 20)
    body = admission.request(large, None)
    assert (3 << 20) < len(body) < REVIEW_MAX_BYTES
    assert server.review("/mutate", body)["allowed"]
    assert server.review("/validate", body)["allowed"]


def test_objects_without_pods_are_let_through(server: Webhook) -> None:
    answer = server.review("/validate", admission.request({"apiVersion": "v1", "kind": "Secret"}, None))
    assert answer == {"uid": answer["uid"], "allowed": True}


def test_api_server_that_is_away_stops_no_answer(server: Webhook) -> None:
    server.api.troubles.append(Trouble(lambda *_: True, status=500))
    try:
        assert server.review("/mutate", admission.request(ASKING.manifest, None))["allowed"]
        bundle = webhook.bundles(server.api)[0]
        assert server.call("GET", "/readyz", bundle=bundle)[0] == 200
    finally:
        server.api.troubles.clear()


def test_memory_stays_small(server: Webhook) -> None:
    body = admission.request(ASKING.manifest, None)
    for _ in range(20):
        server.review("/mutate", body)
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    assert int(line.split()[1]) < MEMORY_MAX_KIB


def test_secret_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with api_server.running() as broken:
        webhook.configure(broken)
        metadata = {"name": webhooks.NAME, "namespace": webhooks.NAMESPACE}
        bad = {"ca.crt": "AAAA", "ca.key": "AAAA"}
        broken.put(webhook.SECRET, {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": bad})
        with webhook.started(broken, tmp_path) as process:
            log = tmp_path / "webhook.log"
            until(lambda: "cannot be read" in log.read_text(), "the webhook says what is wrong")
            [line] = log.read_text().splitlines()
            assert line.startswith("mgpu: the webhook's certificate authority cannot be read: ")
            broken.remove(webhook.SECRET)
            until(lambda: json.dumps(broken.get(webhook.SECRET)) != "null", "it makes a new one")
            assert process.poll() is None


def test_no_way_to_the_api_server_is_one_line() -> None:
    done = attempt(sys.executable, "-m", "cluster.admission", "--kubeconfig", "/none")
    assert done.status == 1
    [line] = done.err.splitlines()
    assert "no way to the API server" in line
