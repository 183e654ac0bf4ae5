"""mgpu doctor on a node that serves: it finds what is there, and disturbs nothing."""

import json

from mgpu_cli.doctor import containerd_facts
from mgpu_cli.doctor.docker import GROUP
from mgpu_cli.doctor.finding import Level
from mgpu_cli.doctor.host import Host
from mgpu_cli.state import StateDir
from tests.support.arbiter import Arbiter
from tests.support.containerd import Containerd, major
from tests.support.dockerd import Dockerd
from tests.support.load import load, working

OURS = {"cdi", "driver", "mgpud", "leftovers"}
SATURATE = ("saturate", "--kernel-us", "1000", "--seconds", "600")


def test_mgpu_serves_and_goes_on_serving(mgpu: Arbiter) -> None:
    with load(mgpu, *SATURATE) as one:
        working(one)
        before = mgpu.ask("health")
        found = json.loads(mgpu.try_mgpu("doctor", "-o", "json").out)
        faults = [each for each in found if each["group"] in OURS and each["level"] in ("warn", "fail")]
        assert faults == []
        levels = {each["id"]: each["level"] for each in found}
        assert levels["mgpud-answers"] == levels["mgpud-probes"] == levels["driver-simulated"] == "ok"
        assert levels["leftover-grants"] == levels["cdi-specs"] == "ok"
        after = mgpu.ask("health")
        assert (after["pid"], after["listeners"]) == (before["pid"], before["listeners"])


def test_containerd_tells_of_itself(ctd: Containerd) -> None:
    facts = containerd_facts.ask(str(ctd.address))
    assert facts.error == ""
    assert facts.version.startswith(f"{major()}.")
    assert "io.containerd.runtime.v2.task" in facts.plugins
    # The tests' own is configured without it.
    assert not facts.serves_kubernetes


def test_docker_tells_of_its_runtimes(docker: Dockerd, mgpu: Arbiter) -> None:
    host = Host(state=StateDir(mgpu.root))
    info = host.get(str(docker.home / "d.sock"), "/info")

    class Here(Host):
        def is_socket(self, _name: object) -> bool:
            return True

    here = Here(state=StateDir(mgpu.root), get=lambda _path, _url: info)
    found = [finding for check in GROUP.checks for finding in check(here)]
    assert [(each.id, each.level) for each in found] == [("docker-runtime", Level.OK)]
