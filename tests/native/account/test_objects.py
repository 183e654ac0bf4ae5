"""The RM object tree against a model: lookup, and which charges end with an ancestor or a file."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CFUNCTYPE, POINTER, byref, c_int64, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.books import OBJECTS, Objects, RmObject, Store

ENDED = CFUNCTYPE(None, c_void_p, c_void_p)


@contextmanager
def no_objects(core: ctypes.CDLL) -> Iterator[Objects]:
    """A table without any, in memory of its own."""
    store, objects = Store(), Objects()
    assert core.store_open(byref(store), -1, b"tenant-1", byref(OBJECTS)) == 0
    assert core.objects_init(byref(objects), byref(store), c_size_t(0)) == 0
    try:
        yield objects
    finally:
        core.objects_destroy(byref(objects))
        core.store_close(byref(store))


@dataclass
class Node:
    name: tuple[int, int]
    slot: int
    parent: "Node | None"
    size: int
    file: int
    children: list["Node"] = field(default_factory=list)

    def root(self) -> "Node":
        return self.parent.root() if self.parent else self

    def subtree(self) -> list["Node"]:
        return [self, *(n for child in self.children for n in child.subtree())]


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "drop", "gone"]),
        st.integers(0, 1 << 16),
        st.integers(0, 7),
        st.integers(0, 99),
    ),
    max_size=80,
)


@settings(max_examples=150)
@given(steps=steps)
def test_objects_match_a_model(core: ctypes.CDLL, steps: list[tuple[str, int, int, int]]) -> None:
    core.objects_add.restype = c_int64
    with no_objects(core) as objects:
        live: dict[tuple[int, int], Node] = {}
        ended: list[int] = []
        note = ENDED(lambda _context, obj: ended.append(ctypes.cast(obj, POINTER(RmObject)).contents.bytes))
        for what, pick, handle, size in steps:
            nodes = list(live.values())
            if what == "add":
                parent = nodes[pick % len(nodes)] if nodes and handle else None
                client = parent.name[0] if parent else 1000 + pick % 5
                name = (client, handle if parent else client)
                if name in live:
                    continue
                slot = core.objects_add(byref(objects), parent.slot if parent else 0, *name, 0x40)
                assert slot > 0
                objects.slot[slot].bytes = size
                node = Node(name, slot, parent, size, file=0 if parent else pick % 3)
                objects.slot[slot].file = node.file
                if parent:
                    parent.children.append(node)
                live[name] = node
            elif nodes and what == "gone":
                roots = [n for n in nodes if n.parent is None and n.file == pick % 3]
                gone = [n for root in roots for n in root.subtree()]
                ended.clear()
                core.objects_drop_file(byref(objects), c_uint64(pick % 3), note, None)
                assert sorted(ended) == sorted(n.size for n in gone)
                for n in gone:
                    del live[n.name]
            elif nodes:
                node = nodes[pick % len(nodes)]
                gone = node.subtree()
                ended.clear()
                core.objects_drop(byref(objects), node.slot, note, None)
                assert sorted(ended) == sorted(n.size for n in gone)
                if node.parent:
                    node.parent.children.remove(node)
                for n in gone:
                    del live[n.name]
            assert objects.live == len(live)
            for name, node in live.items():
                assert core.objects_find(byref(objects), *name) == node.slot
                assert core.objects_root(byref(objects), node.slot) == node.root().slot


def test_capacity_is_a_bound_not_a_crash(core: ctypes.CDLL) -> None:
    core.objects_add.restype = c_int64
    with no_objects(core) as objects:
        root = core.objects_add(byref(objects), 0, 1, 1, 0)
        for handle in range(2, 65537):
            assert core.objects_add(byref(objects), root, 1, handle, 0) > 0
        assert core.objects_add(byref(objects), root, 1, 70000, 0) < 0
        core.objects_drop(byref(objects), root, ENDED(lambda _context, _obj: None), None)
        assert objects.live == 0
        assert core.objects_add(byref(objects), 0, 2, 2, 0) > 0
