"""Host memory that a container can still take, by the limits of both cgroup hierarchies."""

from pathlib import Path

import pytest

from native_sched.daemon.reclaim import host_memory

MIB = 1 << 20
PID = 7
V1 = "memory.limit_in_bytes", "memory.usage_in_bytes"
V2 = "memory.max", "memory.current"


class Host:
    """proc and cgroups as folders."""

    def __init__(self, folder: Path, cgroup: str, available_mib: int = 10_000) -> None:
        self.proc, self.cgroups = folder / "proc", folder / "cgroup"
        (self.proc / str(PID)).mkdir(parents=True)
        self.cgroups.mkdir()
        (self.proc / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {available_mib << 10} kB\n")
        (self.proc / str(PID) / "cgroup").write_text(cgroup)

    def group(self, path: str, names: tuple[str, str], limit: object, used_mib: int, stat: str = "") -> None:
        folder = self.cgroups / path
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in zip(names, (limit, used_mib * MIB), strict=True):
            (folder / name).write_text(f"{value}\n")
        (folder / "memory.stat").write_text(stat)

    @property
    def room_mib(self) -> int:
        return host_memory.room_bytes(PID, proc=str(self.proc), cgroups=str(self.cgroups)) // MIB


def unified(tmp_path: Path, cgroup: str = "0::/pods/c\n") -> Host:
    host = Host(tmp_path, cgroup)
    (host.cgroups / "cgroup.controllers").write_text("memory\n")
    return host


@pytest.mark.parametrize("where", ["pods", "pods/c"])
def test_tightest_limit_of_any_cgroup_above_holds(tmp_path: Path, where: str) -> None:
    host = unified(tmp_path)
    for path in ("pods", "pods/c"):
        host.group(path, V2, "max", 10)
    host.group(where, V2, 1000 * MIB, 300)
    assert host.room_mib == 700


def test_pages_of_files_that_go_first_are_room(tmp_path: Path) -> None:
    host = unified(tmp_path)
    host.group("pods/c", V2, 1000 * MIB, 900, f"anon {400 * MIB}\ninactive_file {500 * MIB}\n")
    assert host.room_mib == 600


def test_version_1_has_its_own_folder_and_number_for_no_limit(tmp_path: Path) -> None:
    host = Host(tmp_path, "9:memory:/pods/c\n8:cpu,cpuacct:/pods/c\n0::/pods/c\n")
    host.group("memory/pods", V1, 0x7FFFFFFFFFFFF000, 10)
    assert host.room_mib == 10_000
    host.group("memory/pods/c", V1, 1000 * MIB, 300, f"inactive_file 5\ntotal_inactive_file {MIB}\n")
    assert host.room_mib in (700, 701)


def test_machine_itself_is_a_limit(tmp_path: Path) -> None:
    assert Host(tmp_path, "0::/\n", available_mib=50).room_mib == 50


def test_container_above_its_limit_or_gone_has_none(tmp_path: Path) -> None:
    host = unified(tmp_path)
    host.group("pods/c", V2, 100 * MIB, 300)
    assert host.room_mib == 0
    (host.proc / str(PID) / "cgroup").unlink()
    assert host.room_mib == 0
