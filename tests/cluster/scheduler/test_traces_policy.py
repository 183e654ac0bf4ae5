"""The extender as a policy for traces: its words to the judge, and the picture of what came of it."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tests.bench.curves import curves, drawn
from tests.bench.traces_policy import Policy

NODES = [
    {"name": "a", "cpu_milli": 8000, "memory_mib": 8192, "num_gpu": 2, "model": "T4"},
    {"name": "b", "cpu_milli": 64_000, "memory_mib": 8192, "num_gpu": 4, "model": "G2"},
]


def asked(number: int, gpus: int, milli: int, **others: Any) -> dict[str, Any]:
    plain = {"cpu_milli": 1000, "memory_mib": 1024, "gpu_spec": ""}
    return {"id": f"p{number}", "num_gpu": gpus, "gpu_milli": milli, **plain, **others}


def test_each_request_is_answered_within_what_the_nodes_have() -> None:
    policy = Policy(NODES, "fgd")
    assert policy.place(asked(0, 1, 460, gpu_spec="T4|A10"))["node"] == "a"
    assert policy.place(asked(1, 4, 1000)) == {"node": "b", "gpus": [0, 1, 2, 3]}
    # CPU, memory and model are heeded as the stock scheduler heeds them.
    assert policy.place(asked(2, 1, 100, gpu_spec="V100")) == {"node": None, "gpus": []}
    assert policy.place(asked(3, 1, 100, cpu_milli=7500)) == {"node": None, "gpus": []}
    assert policy.place(asked(4, 0, 0, cpu_milli=60_000)) == {"node": "b", "gpus": []}
    assert policy.place(asked(5, 1, 1000)) == {"node": "a", "gpus": [1]}
    assert policy.place(asked(6, 1, 540)) == {"node": "a", "gpus": [0]}
    assert policy.place(asked(7, 1, 10)) == {"node": None, "gpus": []}


def test_request_that_waits_has_come_once_and_one_that_ends_is_heard_of() -> None:
    policy = Policy(NODES[:1], "fgd")
    policy.place(asked(0, 2, 1000))
    for _ in range(3):
        assert policy.place(asked(1, 1, 1000))["node"] is None
    policy.end("p0")
    assert policy.place(asked(1, 1, 1000))["node"] == "a"
    assert policy.scheduler._mix.turnover == 0.5


def test_picture_has_the_mean_of_each_policys_runs(tmp_path: Path) -> None:
    for name, offsets in (("one", (0, 1)), ("other", (2,))):
        runs = [{"curve": {str(at): min(at, 95) - off for at in range(131)}} for off in offsets]
        (tmp_path / name).write_text(json.dumps(runs))
    found = curves([f"mine={tmp_path}/one", f"theirs={tmp_path}/other"])
    assert found["mine"][100] == 94.5
    picture = drawn(found)
    words = [
        element.text for element in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert words[-2:] == ["mine: 94.50 %", "theirs: 93.00 %"]
