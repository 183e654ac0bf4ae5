"""An AdmissionReview (admission.k8s.io/v1) in, one out; pure."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from cluster.admission import change, refuse, warnings
from cluster.admission.names import Settings
from cluster.admission.shapes import POD, Shape, fits, shape_of
from oci_specs.refusal import Refusal, quoted

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"

Object = dict[str, Any]


def mutate(text: bytes, settings: Settings) -> Object:
    """The answer to a mutating webhook's call; Refusal for what is no review."""
    request = _request(text)
    shape = _shape(request)
    patch = change.patch(shape, request["object"], _old(request), settings) if shape is not None else []
    answer = _allowed(request)
    if patch:
        answer["patchType"] = "JSONPatch"
        answer["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
    return _review(answer)


def validate(text: bytes, settings: Settings) -> Object:
    """The answer to a validating webhook's call; Refusal for what is no review."""
    request = _request(text)
    shape = _shape(request)
    answer = _allowed(request)
    if shape is None:
        return _review(answer)
    refusal = refuse.refusal(shape, request["object"], _old(request), settings)
    if refusal is not None:
        answer["allowed"] = False
        answer["status"] = {"code": 422, "reason": "Invalid", "message": refusal.line()}
    elif shape is POD and request.get("operation") == "CREATE":
        answer["warnings"] = warnings.warnings(settings, request["object"])
    return _review(answer)


def _request(text: bytes) -> Object:
    try:
        review = json.loads(text)
    # RecursionError: thousands of brackets.
    except (ValueError, RecursionError) as error:
        raise _malformed("it is not JSON") from error
    if not isinstance(review, dict) or (review.get("apiVersion"), review.get("kind")) != (API_VERSION, KIND):
        raise _malformed(f"it is no {KIND} of {API_VERSION}")
    request = review.get("request")
    if not isinstance(request, dict) or not isinstance(request.get("uid"), str):
        raise _malformed("it has no request with a uid")
    if not isinstance(request.get("kind"), dict):
        raise _malformed("it names no kind")
    return request


def _shape(request: Mapping[str, Any]) -> Shape | None:
    """Where the request's object keeps its pod; None for what is not judged."""
    kind = request["kind"]
    shape = shape_of(str(kind.get("group", "")), str(kind.get("kind", "")))
    if shape is None:
        return None
    if not isinstance(request.get("object"), dict):
        raise _malformed("it has no object")
    for member in ("object", "oldObject"):
        if not fits(request.get(member), shape):
            raise _malformed(f"its {member} is no {quoted(kind.get('kind', ''))}")
    return shape


def _old(request: Mapping[str, Any]) -> Mapping[str, Any]:
    return request.get("oldObject") or {}


def _allowed(request: Mapping[str, Any]) -> Object:
    return {"uid": request["uid"], "allowed": True}


def _review(answer: Object) -> Object:
    return {"apiVersion": API_VERSION, "kind": KIND, "response": answer}


def _malformed(what: str) -> Refusal:
    return Refusal(
        "bad-review", f"this admission review cannot be read: {what}", "call this server as a webhook alone"
    )
