"""Reviews of any form: an answer or a refusal in one line, never another error."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.admission import names, review
from cluster.admission.names import Settings
from oci_specs.refusal import Refusal
from tests.cluster import admission_support as admission

KINDS = ["Pod", "Deployment", "CronJob", "Job"]
KEYS = [*names.ANNOTATIONS, *names.RESERVED, "mgpu.dev/x", "other.example/x"]
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
ANY = st.recursive(
    SCALARS, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(), each, max_size=3)
)
VALUES = (
    st.sampled_from(["1", "100", "4096", "4k", "1e3", "1.5", "-1", "x", "GPU-1,GPU-2", "online", "²"]) | ANY
)
MAPS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4) | ANY
LIMITS = st.fixed_dictionaries({"limits": MAPS}) | ANY
CONTAINERS = st.lists(
    st.fixed_dictionaries({"name": st.text(max_size=3) | ANY, "resources": LIMITS}) | ANY, max_size=3
)
PODS = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries({"annotations": MAPS, "labels": MAPS, "ownerReferences": ANY})
        | ANY,
        "spec": st.fixed_dictionaries({"containers": CONTAINERS, "initContainers": CONTAINERS | ANY}) | ANY,
    }
)


def manifest(kind: str, pod: Any, metadata: Any) -> Any:
    if kind == "Pod":
        return pod
    spec: Any = {"template": pod}
    return {"metadata": metadata, "spec": {"jobTemplate": {"spec": spec}} if kind == "CronJob" else spec}


@given(
    kind=st.sampled_from(KINDS),
    pod=PODS | ANY,
    old=PODS | st.none() | ANY,
    metadata=st.fixed_dictionaries({"annotations": MAPS}) | ANY,
    hami=st.booleans(),
)
def test_any_object_gets_an_answer_or_one_line(
    kind: str, pod: Any, old: Any, metadata: Any, hami: bool
) -> None:
    group = {"Pod": "", "Deployment": "apps"}.get(kind, "batch")
    request = {
        "uid": "1",
        "kind": {"group": group, "version": "v1", "kind": kind},
        "operation": "CREATE" if old is None else "UPDATE",
        "object": manifest(kind, pod, metadata),
        "oldObject": None if old is None else manifest(kind, old, metadata),
    }
    text = json.dumps({"apiVersion": review.API_VERSION, "kind": review.KIND, "request": request}).encode()
    for form in (review.mutate, review.validate):
        message = said(form, text, Settings(hami=hami))
        assert message.isprintable()


def said(form: Callable[[bytes, Settings], review.Object], text: bytes, settings: Settings) -> str:
    """The line of a refusal, by the review or of it; "" for an answer that lets the object through."""
    try:
        answer = form(text, settings)
    except Refusal as refusal:
        return refusal.line()
    json.dumps(answer)
    return str(answer["response"].get("status", {}).get("message", ""))


@pytest.mark.parametrize("text", [b"\xff", b"null", b"1", b'"x"', b"{}" * 2])
def test_text_that_is_no_json_object_is_refused(text: bytes) -> None:
    with pytest.raises(Refusal):
        review.mutate(text, Settings())


def test_large_pod_is_answered_with_one_operation_a_limit() -> None:
    large = admission.large_pod(1 << 20)
    answer = review.mutate(admission.request(large, None), Settings())["response"]
    count = len(large["spec"]["containers"])
    assert len(admission.patch(answer)) == count + 2
