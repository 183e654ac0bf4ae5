"""What of the run on a card a simulated card has no part in: by programs, drivers and files that are made up
here.
"""

import json
import os
import struct
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from native_sched.daemon.node.inventory import CardInfo
from tests.gpu import (
    cdi,
    first,
    forced_refusals,
    lock_holders,
    memory_view,
    own_questions,
    peers,
    product,
    product_stages,
    recording,
    rm,
    served,
    stages,
    uvm_files,
)
from tests.gpu.own_client import OwnClient
from tests.gpu.results import Results
from tests.gpu.stage import CannotSayError
from tests.gpu.supervise import Census
from tests.support import rm_numbers as nv
from tests.support.commands import attempt
from tests.support.container_stages import Product, verdict


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "results")


def said(*steps: tuple[str, Any], **figures: Any) -> str:
    return "talk\n" + "".join(
        json.dumps({"step": name, "code": code, **figures}) + "\n" for name, code in steps
    )


# Stages of the first hour.


def test_every_stage_has_a_name_of_its_own() -> None:
    assert len({stage.name for stage in stages.STAGES}) == len(stages.STAGES)
    assert all(stage.limit_s < stages.PART_S for stage in stages.STAGES)


def test_start_reports_the_call_at_which_it_stops(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what the same does without mgpu."""
    plain = subprocess.CompletedProcess([], 0, said(("init", 0), ("count", 0)), "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: plain)
    out = verdict(first.cu_init, Product(said(("init", 0), ("count", 100))), results)
    assert out.verdict == "stops at count: error 100"
    assert [step["step"] for step in out.figures["plain"]] == ["init", "count"]
    out = verdict(first.cu_init, Product(said(("init", 0))), results)
    assert out.verdict == "stops at count, which did not come back"
    out = verdict(first.cu_init, Product(said(("libcuda.so.1", "cannot open"))), results)
    assert out.verdict == "stops at libcuda.so.1: cannot open"
    assert (
        verdict(first.cu_init, Product(said(("init", 0), ("count", 0))), results).verdict
        == "cuInit succeeds"
    )


@pytest.mark.parametrize(
    ("status", "text", "wanted"), [(0, "table", "runs"), (9, "no devices", "status 9: no devices")]
)
def test_nvidia_smi_in_a_container(results: Results, status: int, text: str, wanted: str) -> None:
    assert verdict(first.nvidia_smi, Product(text, status=status), results).verdict == wanted


@pytest.mark.parametrize(
    ("oom_at_mib", "wanted"), [(4096, "out of memory at the cap, goes on"), (8192, "not as expected")]
)
def test_torch_stage_reads_the_programs_report(
    results: Results, monkeypatch: pytest.MonkeyPatch, oom_at_mib: int, wanted: str
) -> None:
    monkeypatch.setattr(product_stages, "python_with", lambda module: f"/a/python/with/{module}")
    says = json.dumps({"total_mib": 4309, "oom_at_mib": oom_at_mib, "after": True})
    box = Product(says)
    assert verdict(product_stages.torch, box, results).verdict == wanted
    assert box.asked[0]["argv"][0] == "/a/python/with/torch"


# Two cards.


def test_promised_peer_that_is_refused_is_reported(results: Results) -> None:
    words = [(word, 0) for word in ("init", "context", "context=0:1", "peer", "info", "destroy", "destroy")]
    box = Product(said(*words, may=0, enabled=217))
    assert verdict(peers.two_cards, box, results).verdict == "consistent"
    assert box.asked[0]["cards"] == "0,1"
    assert verdict(peers.two_cards, Product(said(*words, may=1, enabled=304)), results).verdict == (
        "peers: may 1, enabled 304"
    )
    with pytest.raises(CannotSayError, match="there is one card"):
        verdict(peers.two_cards, Product(cards=1), results)


def test_all_reduce_needs_both_sums(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "python_with", lambda module: "/python")
    ranks = [f'x NCCL INFO Channel 00 : {n} via SHM/direct\n{{"rank": {n}, "sum": 3.0}}\n' for n in (0, 1)]
    out = verdict(peers.one_container, Product("".join(ranks)), results)
    assert (out.verdict, out.figures["via"]) == ("all_reduce is right", ["SHM/direct"])
    assert verdict(peers.one_container, Product(ranks[0] + "error"), results).verdict.startswith("fails: ")
    box = Product(*ranks)
    assert verdict(peers.two_containers, box, results).verdict == "all_reduce is right"
    assert [(one["cards"], one["host_network"]) for one in box.asked] == [("0", True), ("1", True)]


def test_nccl_is_not_tried_without_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "python_with", lambda module: None)
    for driver, cards, why in (("sim", 2, "computes"), ("nvidia", 1, "one card"), ("nvidia", 2, "torch")):
        with pytest.raises(CannotSayError, match=why):
            peers.needed(driver, cards)


class Program:
    """A supervised program that uses a class of peers, unless that is refused."""

    def __init__(self, _: Any, argv: list[str], how: Any) -> None:
        self._alone = how.refuse("class", nv.NV50_P2P)
        self.census = Census(seen=Counter({"class 0x503b": 4}))

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        return

    def output(self, _: float) -> str:
        return "Aborted" if self._alone else '{"rank": 0, "sum": 3.0}\n{"rank": 1, "sum": 3.0}\n'


def test_peers_natively_with_and_without_their_classes(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "python_with", lambda module: "/python")
    monkeypatch.setattr(peers, "Supervised", Program)

    class Backend:
        name = "nvidia"

        def cards(self) -> int:
            return 2

    out = verdict(peers.natively, Backend(), results)
    assert out.verdict == "all_reduce is right natively"
    assert out.figures["allowed"]["right"] is True
    assert out.figures["allowed"]["classes"]["NV50_P2P"] == 4
    assert out.figures["refused"]["right"] is False


# The recording.


def test_calls_that_come_to_something_else_inside_are_named(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    script: list[str] = []

    def natively(text: str) -> str:
        script.append(text)
        return "1 0 0 0 0\n4 0 0 0 0\n5 -1 2 ffff 0\n"

    monkeypatch.setattr(recording, "_natively", natively)
    box = Product("1 0 0 0 0\n4 0 0 23 0\n5 -1 2 ffff 0\n")
    out = verdict(recording.played, box, results)
    assert out.verdict == "1 calls differ"
    assert out.figures["differ"] == ["4 NV_ESC_RM_CONTROL 0x101: status 0x23 / status 0x0"]
    # The script is given in pieces that an argument may have, and is whole.
    assert "".join(box.asked[0]["argv"][4:]) == script[0]
    assert all(len(piece) <= recording.PIECE_BYTES for piece in box.asked[0]["argv"])
    out = verdict(recording.played, Product("cannot open"), results)
    assert out.verdict == "does not play: cannot open"


# Forced refusals.


def test_refusal_that_stops_a_program_is_named() -> None:
    def works(refuses: Any) -> tuple[bool, list[str]]:
        asked = [("class", 0xDE), ("control", 0x20809001), ("control", 0x101)]
        refused = [f"{kind} {number:#x}" for kind, number in asked if refuses(kind, number)]
        return "control 0x20809001" not in refused, refused

    served_by_mgpu = {
        "class": frozenset({0x80}),
        "control": frozenset({0x101}),
        "uvm": frozenset({25}),
    }
    refuses = served.refused_by(served_by_mgpu)
    assert refuses("escape", rm.command(0x59, 16))
    assert not refuses("escape", rm.command(rm.ALLOC, 48))
    assert not refuses("uvm", 25)
    assert refuses("uvm", 71)
    assert forced_refusals.needs(works, refuses) == {
        "natively": True,
        "with_refusals": False,
        "refused": ["class 0xde", "control 0x20809001"],
        "stopped_by": ["control 0x20809001"],
    }


def test_served_calls_are_those_with_a_row() -> None:
    found = served.from_rows()
    assert nv.KEPLER_CHANNEL_GROUP_A in found["class"]
    assert nv.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE in found["control"]
    assert nv.MPS_COMPUTE not in found["class"]
    assert 25 in found["uvm"]
    assert 71 not in found["uvm"]


def test_memory_view_takes_calls_made_more_often_only() -> None:
    once = Counter({"fb index 0x8": 3, "control 0x20801303/1028": 4, "class 0x41": 1})
    often = Counter({"fb index 0x8": 13, "control 0x20801303/1028": 14, "class 0x41": 11, "fb index 0x7": 1})
    assert memory_view.each(once, often) == {"control 0x20801303/1028": 1.0, "fb index 0x8": 1.0}


# What is read of a card's registers, and asked of its driver.


class Driver:
    """Answers controls and allocations by their number; an object is there once it was made."""

    name = "nvidia"

    def __init__(self, sizes: dict[int, int], behind: Path = Path("/dev/null")) -> None:
        self.sizes, self.behind = sizes, behind
        self.there: dict[int, int] = {}
        self.opened: list[str] = []

    def open(self, node: str) -> int:
        self.opened.append(node)
        return os.open(self.behind, os.O_RDONLY)

    def registers(self) -> tuple[int, int]:
        return -1, 0

    def on_file(self, fd: int, call: rm.Call) -> int:
        if call.number == rm.ALLOC:
            handle = call.u32(8) or 0xC1D0
            self.there[handle] = call.u32(12)
            struct.pack_into("<I", call.outer, 8, handle)
        elif call.number == rm.CONTROL:
            struct.pack_into("<I", call.outer, 0x1C, self._control(call))
        return 0

    def _control(self, call: rm.Call) -> int:
        thing, cmd = call.u32(4), call.u32(8)
        if cmd == rm.RUNLIST_BASE:
            engine = struct.unpack_from("<I", call.params)[0]
            if len(call.params) != self.sizes[cmd] or engine > rm.GRAPHICS:
                return rm.INVALID_ARGUMENT
            struct.pack_into("<I", call.params, 4 * 62, 0x1000)
            return rm.OK
        # RM compares the size before it looks for the object.
        if len(call.params) != self.sizes[cmd]:
            return rm.INVALID_ARGUMENT
        if thing not in self.there:
            return 0x57
        return rm.OK if self.there[thing] == cmd >> 16 else rm.NOT_SUPPORTED


def test_right_size_distinguishes_a_subscription() -> None:
    driver = Driver({own_questions.CONTROLS[own_questions.GPU_INSTANCE][0]: 364})
    minors = {"gpu0/gi3/access": 20, "gpu0/gi3/ci0/access": 21, "config": 1, "gpu1/gi1/ci0/access": 30}
    with OwnClient(driver) as own:  # type: ignore[arg-type]
        with pytest.raises(CannotSayError, match="no MIG instance"):
            own_questions.mig_subscribe(own, {"config": 1})
        found = own_questions.mig_subscribe(own, minors)
    assert driver.opened == ["nvidiactl", *(f"nvidia-caps/nvidia-cap{n}" for n in (20, 21, 20))]
    assert found == {
        "subscribed": {"gpu0/gi3/access": "0x0", "gpu0/gi3/ci0/access": "0x0"},
        "with_another's_capability": {"status": "0x0"},
        "right_size": {"subscription": "0x0", "subdevice": "0x56", "nothing": "0x57"},
        "no_size": dict.fromkeys(("subscription", "subdevice", "nothing"), "0x1f"),
    }


def test_sizes_of_a_driver_that_looks_at_them_first(results: Results) -> None:
    driver = Driver({own_questions.ARCH_INFO: own_questions.ARCH_BYTES})
    out = verdict(own_questions.sizes, driver, results)
    assert out.verdict == "a wrong size is told before the object is"


def test_graphics_runlist_is_found_by_the_size_that_the_driver_takes(tmp_path: Path) -> None:
    driver = Driver({rm.RUNLIST_BASE: 496})
    with OwnClient(driver) as own:  # type: ignore[arg-type]
        assert own.runlist_bases() == {rm.GRAPHICS: 0x1000}


def test_registers_are_read_by_rm_where_the_kernel_maps_them_for_nobody(tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_bytes(bytes(0x200) + struct.pack("<I", 0x80000007) + bytes(0x1000))
    bar = tmp_path / "0000:01:00.0" / "resource0"
    bar.parent.mkdir()
    # A file of sysfs has 4 KiB and cannot be mapped.
    for behind, asked in ((words, []), (Path("/sys/kernel/mm/transparent_hugepage/enabled"), ["nvidia0"])):
        bar.unlink(missing_ok=True)
        bar.symlink_to(behind)
        driver = Driver({}, words)
        with OwnClient(driver) as own:  # type: ignore[arg-type]
            assert [own.register(at, tmp_path)() for at in (0x200, 0x204)] == [0x80000007, 0]
        assert driver.opened == ["nvidiactl", *asked]
        assert (nv.NV01_MEMORY_LOCAL_PRIVILEGED in driver.there.values()) == bool(asked)


def test_registers_that_are_hidden_cannot_be_mapped(tmp_path: Path) -> None:
    (tmp_path / "resource0").write_bytes(bytes(4096))
    script = "import mmap; f = open('resource0', 'rb'); mmap.mmap(f.fileno(), 4096, mmap.MAP_SHARED, mmap.PROT_READ)"
    command = product.without_registers(["python3", "-c", script], f"{tmp_path}/*resource0")
    done = attempt(*command, cwd=tmp_path)
    assert "OSError" in done.err
    assert (tmp_path / "resource0").stat().st_size == 4096


def test_instance_has_its_gpus_node_and_two_capabilities(tmp_path: Path) -> None:
    card = CardInfo(index=0, minor=1, uuid="GPU-a", name="it", memory_mib=1, gpu_id=256)
    cards = [card, replace(card, index=1, minor=0, uuid="MIG-b", instance=(3, 0))]
    (tmp_path / "nvidiactl").touch()
    found = cdi.spec(cards, tmp_path, {"gpu0/gi3/access": 20, "gpu0/gi3/ci0/access": 21})
    nodes = {
        one["name"]: [node["path"] for node in one["containerEdits"]["deviceNodes"]]
        for one in found["devices"]
    }
    assert nodes["GPU-a"] == nodes["0"] == ["/dev/nvidia1"]
    assert nodes["MIG-b"] == [
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap20",
        "/dev/nvidia-caps/nvidia-cap21",
    ]
    assert [node["path"] for node in found["containerEdits"]["deviceNodes"]] == ["/dev/nvidiactl"]


# Files of nvidia-uvm.


def test_polled_tells_pollable_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "node")
    (tmp_path / "file").touch()
    assert uvm_files.polled(tmp_path / "node")
    assert not uvm_files.polled(tmp_path / "file")


def test_file_counts_until_its_last_descriptor_is_closed(tmp_path: Path) -> None:
    """As the module would: the count is what the test writes, twice the number of open files."""
    count = tmp_path / "refcnt"
    count.write_text("4\n")

    class Count:
        def read_text(self) -> str:
            held = [one for one in Path("/proc/self/fd").iterdir() if one.exists() and one.samefile(count)]
            return str(4 + 2 * bool(held))

    def opened() -> int:
        return os.open(count, os.O_RDONLY)

    found = uvm_files.counted(opened, Count())  # type: ignore[arg-type]
    assert found == {"open": 2, "dup": 2, "closed one": 2, "closed both": 0}


def test_unmap_status_tells_an_initialised_file() -> None:
    state = {"initialized": False}

    def ioctl(fd: int, command: int, params: bytearray) -> None:
        if command == uvm_files.INITIALIZE:
            state["initialized"] = True
            return
        if not state["initialized"]:
            raise OSError(1, "EPERM")
        struct.pack_into("<I", params, uvm_files.UNMAP_STATUS_AT, 0x1E)

    answered = uvm_files.unmapped(3, ioctl)
    assert answered == {
        "before": "EPERM",
        "initialize": "0x0",
        "again": "0x0",
        "after": "0x1e",
        "outside a range, of no GPU": "0x1e",
    }
    counts = {"open": 2, "dup": 2, "closed one": 2, "closed both": 0}
    nodes = {"nvidiactl": True, "nvidia0": True, "nvidia-uvm": False}
    assert uvm_files.judged(nodes, counts, answered) == "as assumed"
    wrong = uvm_files.judged(dict.fromkeys(nodes, True), counts | {"dup": 4}, answered | {"before": "0x1e"})
    assert wrong == "not as assumed: polling, counting, initialised"


# A tenth of a processor.


def test_old_hierarchy_and_the_unified_one_are_limited_each_in_its_way(tmp_path: Path) -> None:
    with pytest.raises(CannotSayError, match="no cgroup"):
        lock_holders._cpu_group(tmp_path)
    unified = tmp_path / "unified"
    unified.mkdir()
    (unified / "cgroup.subtree_control").write_text("memory cpu\n")
    group, limits = lock_holders._cpu_group(tmp_path)
    assert (group.parent, limits) == (unified, {"cpu.max": "10000 100000"})
    old = tmp_path / "cpu"
    old.mkdir()
    (old / "cgroup.procs").write_text("")
    group, limits = lock_holders._cpu_group(tmp_path)
    assert (group.parent, limits) == (old, {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "10000"})


def test_limited_process_joins_the_cgroup_with_its_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_holders, "LEAVE_S", 0.0)
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cgroup.procs").write_text("")
    with lock_holders.a_tenth(tmp_path) as limit:
        limit(1)
        [group] = [path for path in (tmp_path / "cpu").iterdir() if path.is_dir()]
        assert (group / "cpu.cfs_quota_us").read_text() == "10000"
        assert (group / "cgroup.procs").read_text() == "1"
