import pytest
from hypothesis import given
from hypothesis import strategies as st

from native_sched.daemon.node.config import NodeConfig
from oci_specs import parse, vocabulary
from oci_specs.refusal import Refusal, printable, quoted
from oci_specs.request import Request
from placement.place import CardState, place
from tests.refusals import NODE_REFUSALS, REFUSALS, RefusalCase

CONFIG = NodeConfig()
NODE = tuple(
    CardState(index=index, minor=index, uuid=f"GPU-{index}", name="Tesla V100-SXM2-16GB", memory_mib=16160)
    for index in range(2)
)


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.id)
def test_refused_with_this_line(case: RefusalCase) -> None:
    assert vocabulary.names_gpu(case.annotations, case.env), "the create path would not even ask"
    with pytest.raises(Refusal) as raised:
        parse.request(case.annotations, case.env, CONFIG)
    assert raised.value.line() == case.line


def test_every_amount_is_refused_in_a_line() -> None:
    tried = {name for case in (*REFUSALS, *NODE_REFUSALS) for name in case.annotations}
    amounts = {
        key.name
        for key in vocabulary.KEYS
        if key.source == vocabulary.ANNOTATION and key.meaning in (vocabulary.MEMORY, vocabulary.CORE)
    }
    assert amounts - tried == {vocabulary.RECLAIMABLE_MEMORY}, "tests/refusals.py"


@pytest.mark.parametrize("case", NODE_REFUSALS, ids=lambda case: case.id)
def test_refused_on_a_node_of_two_cards_with_this_line(case: RefusalCase) -> None:
    request = parse.request(case.annotations, case.env, CONFIG)
    assert request is not None
    with pytest.raises(Refusal) as raised:
        place(request, NODE, CONFIG)
    assert raised.value.line() == case.line


def test_ids_are_unique_and_env_cases_have_no_annotations() -> None:
    cases = [*REFUSALS, *NODE_REFUSALS]
    assert len({case.id for case in cases}) == len(cases)
    assert all(case.can_be_env is (not case.annotations) for case in cases)


def test_aliyun_unit_mib_says_so() -> None:
    with pytest.raises(Refusal) as raised:
        parse.request({"aliyun.com/gpu-mem": "8"}, {}, NodeConfig(aliyun_unit="mib"))
    assert raised.value.line() == (
        'mgpu: aliyun.com/gpu-mem is "8"; allowed: a whole number of MiB, 256 or more'
    )


def test_error_round_trip() -> None:
    refusal = Refusal("bad-value", "a\nb", "c\td")
    error = refusal.to_error()
    assert error == {"code": "bad-value", "message": "a\\nb", "hint": "c\\td"}
    assert Refusal.from_error(error).line() == refusal.line() == str(refusal) == "mgpu: a\\nb; c\\td"


@given(st.text())
def test_quoted_text_is_one_printable_line(text: str) -> None:
    assert printable(text).isprintable()
    assert quoted(text).isprintable()
    assert len(quoted(text)) <= 120 * len("\\U0010ffff") + 3


_annotation = st.sampled_from([key.name for key in vocabulary.KEYS if key.source == vocabulary.ANNOTATION])
_variable = st.sampled_from(
    [key.name for key in vocabulary.KEYS if key.source == vocabulary.ENV]
    + [vocabulary.VISIBLE_DEVICES, "MGPU_MEMORY", "MGPU_ROOT"]
)
_value = st.one_of(
    st.integers(-1, 400).map(str),
    st.sampled_from(
        ["all", "none", "void", "", "offline", "online", "fs", "2,2", "0,1", "GPU-a", "GPU-a,GPU-b"]
    ),
    st.text(max_size=20),
)


def parse_or_refuse(annotations: dict[str, str], env: dict[str, str]) -> Request | Refusal | None:
    try:
        return parse.request(annotations, env, CONFIG)
    except Refusal as refusal:
        return refusal


@given(st.dictionaries(_annotation, _value, max_size=5), st.dictionaries(_variable, _value, max_size=5))
def test_anything_gives_a_request_nothing_or_one_line(
    annotations: dict[str, str], env: dict[str, str]
) -> None:
    request = parse_or_refuse(annotations, env)
    if request is None:
        return
    assert vocabulary.names_gpu(annotations, env)
    if isinstance(request, Refusal):
        assert request.line().isprintable()
        assert request.line().startswith("mgpu: ")
        return
    if request.count is not None:
        assert (request.core_percent or 0) <= 100 * request.count
        assert (request.core_percent or 0) % request.count == 0
        if request.memory is not None:
            assert ((request.memory.mib or 0) + (request.memory.units or 0)) % request.count == 0
