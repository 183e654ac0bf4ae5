"""The bindings are what `make protos` makes of containerd_api/protos, and say what containerd says on the
wire.
"""

import re
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor

from containerd_api import methods
from containerd_api.generated import containers_pb2, events_pb2, process_pb2, task_events_pb2
from containerd_api.methods import Method
from tests.support.places import REPOSITORY
from tools import protos

# protoc's own version, which a newer one of the range in pyproject.toml changes.
_VERSIONS = re.compile(r"^# Protobuf Python Version: .*$|^ {4}(\d+|''),$", re.MULTILINE)


def made(folder: Path) -> dict[str, str]:
    return {path.name: _VERSIONS.sub("", path.read_text()) for path in folder.glob("*_pb2.py*")}


@pytest.mark.parametrize("package", protos.PACKAGES, ids=str)
def test_generated_as_make_protos_does(tmp_path: Path, package: Path) -> None:
    protos.generate(tmp_path, package)
    here = made(REPOSITORY / package / "generated")
    assert len(here) == 2 * len(list((REPOSITORY / package / "protos").glob("*.proto")))
    assert here == made(tmp_path / package / "generated")


def number(message: type, name: str) -> int:
    field: FieldDescriptor = message.DESCRIPTOR.fields_by_name[name]  # type: ignore[attr-defined]
    return field.number


def test_numbers_that_are_containerds() -> None:
    assert [number(events_pb2.Envelope, name) for name in ("timestamp", "namespace", "topic", "event")] == [
        1,
        2,
        3,
        4,
    ]
    assert number(process_pb2.Process, "exit_status") == 9
    assert number(containers_pb2.Container, "runtime") == 4
    assert number(task_events_pb2.TaskExit, "exit_status") == 4
    assert process_pb2.Status.Value("PAUSED") == 4
    assert task_events_pb2.TaskOOM.DESCRIPTOR.full_name == "containerd.events.TaskOOM"


def test_methods_are_those_of_the_protos() -> None:
    """The paths are written by hand; the protos have services too."""
    said = set()
    for path in (REPOSITORY / "containerd_api/protos").glob("*.proto"):
        text = path.read_text()
        package = re.search(r"^package (.*);", text, re.MULTILINE)
        service = re.search(r"^service (\w+)", text, re.MULTILINE)
        for call in re.findall(r"^  rpc (\w+)\(", text, re.MULTILINE):
            assert package is not None
            assert service is not None
            said.add(f"/{package[1]}.{service[1]}/{call}")
    assert said == {each.path for each in vars(methods).values() if isinstance(each, Method)}
