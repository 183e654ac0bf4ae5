"""What a mgpud writes down: whole or not at all, and known again when it is not whole."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from native_sched.daemon.engine_abi import NodeKind
from native_sched.daemon.grants import record as grant_record
from native_sched.daemon.grants.grants import Grant, Node
from native_sched.daemon.grants.store import GrantStore
from native_sched.daemon.node import record_file
from native_sched.daemon.node.record_file import Prepared, Unreadable
from native_sched.daemon.node.state import NodeState
from oci_specs import schemas
from oci_specs.refusal import Refusal
from oci_specs.request import Identity
from placement.cards import CardShare
from tests.support.commands import run

SHARE = CardShare(index=1, minor=1, uuid="GPU-1", name="V100", memory_mib=1024, core_percent=30)


def grant(tenant: int = 1, **changed: Any) -> Grant:
    members: dict[str, Any] = {
        "tenant": tenant,
        "nonce": f"{tenant:032x}",
        "container_id": f"c{tenant}",
        "rootfs": "/r\udcff",
        "identity": Identity(pod="p", namespace=None, container="c"),
        "qos": "offline",
        "policy": "fixed-share",
        "advisory": False,
        "cards": (SHARE,),
        "edits": {"devices": [{"path": "/dev/nvidia1", "type": "c"}]},
        "state": "bound",
        "pid": 7,
        "pid_start": 8,
        "nodes": (Node(1, 2, NodeKind.CARD, 1),),
    }
    return Grant(**{**members, **changed})


@pytest.fixture
def store(tmp_path: Path) -> GrantStore:
    return GrantStore(str(tmp_path / "grants"))


def names(store: GrantStore) -> list[str]:
    return sorted(os.listdir(store.folder))


def document(store: GrantStore, tenant: int = 1) -> Path:
    return Path(store.folder, f"{tenant:032x}.json")


def test_saved_grants_are_loaded(store: GrantStore) -> None:
    some = [
        grant(12),
        grant(3, state="admitted", pid=None, nodes=()),
        grant(4, state="draining", paused=True),
    ]
    for each in some:
        store.save(each)
        schemas.validate("grant_record", json.loads(document(store, each.tenant).read_bytes()))
    found = store.load()
    assert found.grants == sorted(some, key=lambda each: each.tenant)
    assert found.unreadable == frozenset()
    assert isinstance(found.grants[2].nodes[0].kind, NodeKind)
    store.remove(some[0])
    store.remove(some[0])
    assert [each.tenant for each in store.load().grants] == [3, 4]


def test_change_is_there_whole_or_not_at_all(store: GrantStore) -> None:
    store.save(grant())
    change = store.prepare([grant(qos="online"), grant(2)])
    assert [each.qos for each in store.load().grants] == ["offline"], "not before it is committed"
    change = store.prepare([grant(qos="online"), grant(2)])
    change.commit()
    assert [each.qos for each in store.load().grants] == ["online", "offline"]
    store.prepare([grant()]).abandon()
    assert names(store) == [document(store).name, document(store, 2).name]


@pytest.mark.parametrize(
    "keep", ["nothing", "half", "all but the last byte", "another text", "another format"]
)
def test_damaged_document_is_set_aside_and_others_are_read(
    store: GrantStore, keep: str, capfd: pytest.CaptureFixture[str]
) -> None:
    store.save(grant(1))
    store.save(grant(2))
    whole = document(store).read_bytes()
    broken = {
        "nothing": b"",
        "half": whole[: len(whole) // 2],
        "all but the last byte": whole[:-2],
        "another text": whole.replace(b'"memory_mib":1024', b'"memory_mib":4096'),
        "another format": whole.replace(b'"format":1', b'"format":2'),
    }[keep]
    assert broken != whole
    document(store).write_bytes(broken)
    found = store.load()
    assert [each.tenant for each in found.grants] == [2]
    assert found.unreadable == {f"{1:032x}"}
    assert capfd.readouterr().err.count("event=grant-unreadable") == 1
    # The next mgpud does not forget that there was one.
    assert store.load().unreadable == {f"{1:032x}"}
    store.forget_unreadable(f"{1:032x}")
    assert store.load().unreadable == frozenset()
    assert (Path(store.folder, "unreadable") / f"{1:032x}.json.gone").read_bytes() == broken


def test_unreadable_documents_do_not_pile_up(store: GrantStore) -> None:
    for tenant in range(1, 40):
        document(store, tenant).write_text("{}")
        store.load()
        store.forget_unreadable(f"{tenant:032x}")
    assert len(os.listdir(Path(store.folder, "unreadable"))) == 16


def test_document_under_a_foreign_name_is_set_aside(store: GrantStore) -> None:
    store.save(grant(1))
    document(store).rename(document(store, 2))
    assert store.load().grants == []


def test_folder_or_a_link_in_place_of_a_document(store: GrantStore, tmp_path: Path) -> None:
    document(store, 1).mkdir()
    (tmp_path / "x").write_text("{}")
    document(store, 2).symlink_to(tmp_path / "x")
    found = store.load()
    assert (found.grants, len(found.unreadable)) == ([], 2)


def test_unfinished_documents_are_removed(store: GrantStore) -> None:
    store.save(grant())
    Path(store.folder, f"{2:032x}.json.new").write_bytes(b'{"format"')
    assert [each.tenant for each in store.load().grants] == [1]
    assert names(store) == [document(store).name]


def test_grants_of_another_boot_are_forgotten(store: GrantStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save(grant())
    monkeypatch.setattr(record_file, "boot_id", lambda: "another")
    found = store.load()
    assert (found.grants, found.unreadable, names(store)) == ([], frozenset(), [])


@pytest.fixture
def small(tmp_path: Path, private_host: None) -> Iterator[Path]:
    """A file system that is full with a page more."""
    run("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path)
    yield tmp_path
    run("umount", "-l", tmp_path)


def fill(folder: Path) -> None:
    with (folder / "ballast").open("wb", buffering=0) as file:
        while os.statvfs(folder).f_bavail:
            file.write(bytes(4096))


def test_full_file_system_changes_nothing(small: Path) -> None:
    store, state = GrantStore(str(small / "grants")), NodeState(str(small / "node-state.json"))
    store.save(grant())
    state.save(generation=3)
    fill(small)
    with pytest.raises(Refusal) as refused:
        store.save(grant(), qos="online")
    assert refused.value.line() == (
        f"mgpu: mgpud cannot write down the grant of container p/c in {store.folder} (No space left on device); "
        "make room there, or mount it writable, then try again"
    )
    with pytest.raises(Refusal):
        store.prepare([grant(2), grant(3)])
    with pytest.raises(OSError):
        state.save(generation=4)
    assert (names(store), state.now.generation) == ([document(store).name], 3)
    assert [each.qos for each in store.load().grants] == ["offline"]
    state.note(generation=4)
    assert state.now.generation == 4, "it holds all the same"
    store.remove(grant())
    assert names(store) == []


def test_read_only_file_system_changes_nothing(small: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = GrantStore(str(small / "grants"))
    store.save(grant())
    change = store.prepare([grant(qos="online")])
    run("mount", "-o", "remount,ro", small)
    with pytest.raises(Refusal, match="Read-only file system"):
        store.save(grant(), qos="online")
    with pytest.raises(OSError):
        change.commit()
    store.note(grant(qos="online"))
    store.remove(grant())
    assert [each.qos for each in store.load().grants] == ["offline"]
    said = capfd.readouterr().err
    assert "event=grant-not-recorded container=c1" in said
    assert "event=grant-record-not-removed container=c1" in said


def test_node_state_is_written_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "node-state.json"
    state = NodeState(str(path))
    assert (state.now.generation, state.now.last_tenant) == (0, 0)
    state.save(
        generation=1,
        policies={10: "fixed-share", 2: "native-burst-share"},
        contexts={"GPU-1": [1 << 26, 0]},
    )
    schemas.validate("node_state", json.loads(path.read_bytes()))
    change = state.prepare(last_tenant=5)
    assert NodeState(str(path)).now.last_tenant == 0
    change.commit()
    again = NodeState(str(path)).now
    assert (again, again.last_tenant) == (state.now, 5)
    assert again.policies == {10: "fixed-share", 2: "native-burst-share"}
    assert again.contexts == {"GPU-1": [1 << 26, 0]}


def test_lost_state_of_a_node_gives_no_number_twice(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "node-state.json"
    NodeState(str(path)).save(last_tenant=123456)
    path.write_text("{")
    assert NodeState(str(path)).now.last_tenant > 123456
    assert capfd.readouterr().err.count("event=node-state-unreadable") == 1
    assert NodeState(str(path), first=False).now.last_tenant > 123456
    assert capfd.readouterr().err == ""


@given(data=st.binary(max_size=200))
def test_random_bytes_are_unreadable(data: bytes) -> None:
    with pytest.raises(Unreadable):
        record_file.decode("grant", data)


@given(
    body=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_random_body_is_no_grant(body: Any) -> None:
    assert record_file.decode("x", record_file.encode("x", body)) == (record_file.boot_id(), body)
    with pytest.raises(Unreadable):
        grant_record.from_json(body)


def test_write_that_stops_half_way_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "d"
    Prepared(str(path), b"old").commit()
    monkeypatch.setattr(os, "write", lambda fd, data: 0)
    with pytest.raises(OSError):
        Prepared(str(path), b"new")
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["d"])
