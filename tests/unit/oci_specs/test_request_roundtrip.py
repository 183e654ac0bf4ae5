import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oci_specs import schemas
from oci_specs.refusal import Refusal
from oci_specs.request import Identity, Memory, Request
from oci_specs.vocabulary import POLICIES

_names = st.lists(st.text(min_size=1, max_size=12), max_size=4, unique=True).map(tuple)
_memory = st.one_of(
    st.none(),
    st.integers(256, 999_999_999).map(lambda mib: Memory(mib=mib)),
    st.integers(1, 999_999_999).map(lambda units: Memory(units=units)),
)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    whole = draw(st.booleans())
    count = draw(st.integers(1, 64))
    return Request(
        qos=draw(st.sampled_from(["online", "offline"])),
        policy=draw(st.sampled_from([None, *POLICIES])),
        count=draw(st.sampled_from([None, count])) if whole else count,
        uuids=draw(_names),
        candidates=draw(_names),
        memory=None if whole else draw(_memory),
        core_percent=None if whole else draw(st.one_of(st.none(), st.integers(1, 6400))),
        whole_cards=whole,
        identity=Identity(
            pod=draw(st.one_of(st.none(), st.text())),
            namespace=draw(st.one_of(st.none(), st.text())),
            container=draw(st.text()),
        ),
    )


@given(requests())
def test_through_json_and_back(request: Request) -> None:
    text = json.dumps(request.to_json())
    assert Request.from_json(json.loads(text)) == request


def test_schema_has_the_members_of_the_dataclass() -> None:
    schema = schemas.load("request")
    assert list(schema["properties"]) == schema["required"] == list(Request.__dataclass_fields__)


GOOD = Request(qos="online", policy=None, count=1, memory=Memory(mib=4096)).to_json()

BAD: list[Any] = [
    None,
    [],
    {},
    {**GOOD, "more": 1},
    {**GOOD, "qos": "system"},
    {**GOOD, "policy": "fs"},
    {**GOOD, "count": 0},
    {**GOOD, "count": None},
    {**GOOD, "memory": {}},
    {**GOOD, "memory": {"mib": 4096, "units": 4}},
    {**GOOD, "memory": {"mib": 255}},
    {**GOOD, "core_percent": 0},
    {**GOOD, "whole_cards": True},
    {**GOOD, "uuids": ["GPU-a", "GPU-a"]},
    {**GOOD, "identity": {"pod": None}},
]


@pytest.mark.parametrize("obj", BAD, ids=range(len(BAD)))
def test_anything_else_is_refused(obj: object) -> None:
    with pytest.raises(Refusal) as raised:
        Request.from_json(obj)
    assert raised.value.code == "bad-request"


@pytest.mark.parametrize("fields", [{}, {"mib": 4096, "units": 4}])
def test_memory_is_one_thing(fields: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="either"):
        Memory(**fields)
