"""mgpu install on this machine's engines, in an /etc of the tests' own: they read what was written and use
it.
"""

import json
import os
import tomllib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from install import podman
from mgpu_cli import kernel
from oci_specs import paths
from tests.support import arbiter, host
from tests.support.arbiter import Arbiter
from tests.support.commands import Done, attempt, run
from tests.support.containerd import NO_LIMITS, Containerd, answers, cri_plugin, major
from tests.support.dockerd import RUNTIME, Dockerd
from tests.support.places import IMAGE_NAME, MGPU
from tests.support.podman import Podman
from tests.support.processes import daemon
from tests.support.waiting import until

BIN = Path("/usr/local/bin")
ROOT = Path("/run/mgpu")
CRI = "io.containerd.grpc.v1.cri"
CRI_OF_3 = "io.containerd.cri.v1.runtime"
MS_RDONLY = 0x1
MS_REMOUNT = 0x20
# The socket and the state of a containerd beside those of others.
OWN_PLACES = """
[grpc]
  address = "{home}/c.sock"
[ttrpc]
  address = "{home}/c.ttrpc"
"""
LOOK = ("gpustat", "--no-header")
MOST_S = 2.0
MEMORY = "mgpu.dev/memory-mib=2048"


@pytest.fixture(scope="module")
def own_etc(private_host: None) -> Iterator[None]:
    with host.own(Path("/etc"), BIN):
        yield


@pytest.fixture(scope="module")
def node(own_etc: None) -> Iterator[Arbiter]:
    """A mgpu where installed engines look for one."""
    with arbiter.running("v100-16", root=ROOT) as running:
        yield running


def install(*args: str | Path) -> str:
    return run(MGPU, "install", *args)


def uninstall(*args: str | Path) -> Done:
    return attempt(MGPU, "uninstall", *args)


def test_docker_runs_an_installed_runtime_and_forgets_an_uninstalled_one(
    docker_daemon: Dockerd, node: Arbiter
) -> None:
    config = docker_daemon.home / "daemon.json"
    before = config.read_bytes()
    install("docker", "--config", config, "--restart")
    wait_for_runtime(docker_daemon, paths.libexec("mgpu-runtime"))
    assert "runc" in docker_daemon.runtimes()
    ask = ["-e", "MGPU_MEMORY_MIB=2048", "--network=none", f"--runtime={RUNTIME}"]
    assert "2048 MB" in docker_daemon.docker("run", "--rm", *ask, IMAGE_NAME, *LOOK)
    held = docker_daemon.docker("run", "--detach", *ask, IMAGE_NAME, "sleep", "60").strip()
    refused = uninstall("docker", "--config", config)
    assert (refused.status, f"1 container holds a GPU: {held[:12]}" in refused.err) == (1, True), str(
        refused
    )
    docker_daemon.docker("rm", "--force", held)
    done = uninstall("docker", "--config", config, "--drain", "--restart")
    assert done.status == 0, str(done)
    assert config.read_bytes() == before
    wait_for_runtime(docker_daemon, str(docker_daemon.runtime_link))


def wait_for_runtime(docker: Dockerd, path: str) -> None:
    """dockerd reads its file some time after the signal."""
    until(lambda: docker.runtimes()[RUNTIME]["path"] == path, f"dockerd's runtime is {path}")


CONFIGS = {
    "none": None,
    "version 1": 'oom_score = 0 # no version, as older ones wrote it\n[debug]\n  level = "warn"\n',
    "debian": 'version = 2\n\n[plugins]\n  [plugins."io.containerd.internal.v1.opt"]\n    path = "/var/x" # here\n',
    "odd": f"""\
# no version 1
version = 2
imports = []
[plugins."{CRI}".containerd.runtimes.kata]   # ours, hands off
  runtime_type = "io.containerd.kata.v2"
[debug]
  level = "warn"
[plugins."{CRI}"]
  sandbox_image = "registry.local/pause:1"
[plugins."{CRI}".containerd]
  snapshotter = "native"
  [plugins."{CRI}".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."{CRI}".containerd.runtimes.runc.options]
      SystemdCgroup = true""",
    "version 3": f"""\
version = 3
[plugins."{CRI_OF_3}"]
  enable_cdi = false
[plugins."{CRI_OF_3}".containerd.runtimes.kata]
  runtime_type = "io.containerd.kata.v2"
""",
}


@pytest.fixture(params=CONFIGS)
def text(request: pytest.FixtureRequest) -> str | None:
    if request.param == ("version 3" if major() < 2 else "version 1"):
        pytest.skip("this containerd reads no CRI plugin's settings of this version")
    return CONFIGS[request.param]


def test_containerd_keeps_its_settings_beside_the_handler(
    own_etc: None, tmp_path: Path, text: str | None
) -> None:
    config = tmp_path / "config.toml"
    if text is not None:
        config.write_text(text)
    before = dumped(config)
    install("containerd", "--config", config)
    after = dumped(config)
    handler = after["plugins"][cri_plugin()]["containerd"]["runtimes"].pop("mgpu")
    assert defaulted(after) == defaulted(before)
    assert "mgpu.dev/*" in handler["pod_annotations"]
    if text is not None and "SystemdCgroup" in text:
        assert set_in(handler["options"]) == {
            "BinaryName": paths.libexec("mgpu-runtime"),
            "SystemdCgroup": True,
        }
    else:
        assert (handler["runtime_type"], handler.get("options", {})) == ("io.containerd.mgpu.v2", {})
    assert uninstall("containerd", "--config", config).status == 0
    assert (config.read_text() if config.exists() else None) == text


def dumped(config: Path) -> dict[str, Any]:
    """The configuration as containerd itself has it."""
    if not config.exists():
        return tomllib.loads(run("containerd", "config", "default"))
    return tomllib.loads(run("containerd", "--config", config, "config", "dump"))


def defaulted(config: dict[str, Any]) -> dict[str, Any]:
    """config without the names of its files, and without what in a handler is as it is when nothing is said:
    containerd shows that or not.
    """
    handlers = config["plugins"][cri_plugin()]["containerd"]["runtimes"]
    for name, handler in handlers.items():
        options = set_in(handler.get("options", {}))
        said = {key: value for key, value in handler.items() if value != "podsandbox"}
        handlers[name] = set_in({**said, "options": options})
    return {**config, "imports": []}


def set_in(table: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if value}


def test_cri_plugin_starts_with_the_handler(own_etc: None, text: str | None) -> None:
    with host.home("cri") as base:
        config = base / "config.toml"
        config.write_text((text or "version = 2") + OWN_PLACES.format(home=base))
        install("containerd", "--config", config)
        argv: list[str | Path] = [
            "containerd",
            "--config",
            config,
            "--root",
            base / "root",
            "--state",
            base / "state",
        ]
        with daemon(argv, log=base / "log", ready=lambda: answers(base / "c.sock")):
            plugins = run("ctr", "--address", base / "c.sock", "plugins", "list")
        assert uninstall("containerd", "--config", config).status == 0
    [line] = [line.split() for line in plugins.splitlines() if "grpc.v1 " in line and " cri " in line]
    assert line[-1] == "ok", plugins


def test_version_1_is_refused_where_containerd_reads_no_handler_of_it(own_etc: None, tmp_path: Path) -> None:
    if major() < 2:
        pytest.skip("containerd 1.x reads version 1")
    config = tmp_path / "config.toml"
    config.write_text('[plugins.cri.containerd.runtimes.seen]\nruntime_type = "io.containerd.runc.v2"\n')
    assert "seen" not in dumped(config)["plugins"][CRI_OF_3]["containerd"]["runtimes"]
    done = attempt(MGPU, "install", "containerd", "--config", config)
    assert (done.status, done.err.count("\n")) == (1, 1), str(done)
    assert f"mgpu: {config} is of version 1" in done.err


def test_read_only_file_system_is_one_line(own_etc: None) -> None:
    with host.home("ro") as base:
        kernel.mount("tmpfs", base, "tmpfs")
        (base / "daemon.json").write_text("{}")
        kernel.mount("tmpfs", base, "tmpfs", flags=MS_REMOUNT | MS_RDONLY)
        done = attempt(MGPU, "install", "docker", "--config", base / "daemon.json")
        assert (done.status, done.out) == (1, "")
        assert done.err.startswith(f"mgpu: {base}/.daemon.json")
        assert "Read-only file system" in done.err
        assert done.err.count("\n") == 1
        assert [path.name for path in base.iterdir()] == ["daemon.json"]
        kernel.unmount(base)
    assert not Path("/etc/mgpu").exists()


def test_import_in_1_x_takes_all_that_the_main_file_says_of_cri(tmp_path: Path) -> None:
    """The reason for which version 2 is edited in place, and for which the settings beside it are read as
    this containerd joins them.
    """
    (tmp_path / "drop-in.toml").write_text(f'version = 2\n[plugins."{CRI}".containerd.runtimes.x]\n')
    main = tmp_path / "config.toml"
    main.write_text(
        f'version = 2\nimports = ["{tmp_path}/drop-in.toml"]\n[plugins."{CRI}"]\nsandbox_image = "kept/me:1"\n'
    )
    dump = run("containerd", "--config", main, "config", "dump")
    assert ("kept/me" in dump) == (major() >= 2)


def test_containerd_runs_the_shim(ctd: Containerd, node: Arbiter) -> None:
    install("containerd")
    try:
        shim = BIN / "containerd-shim-mgpu-v2"
        assert os.readlink(shim) == paths.libexec("containerd-shim-mgpu-v2")
        name = f"t-{uuid.uuid4().hex[:8]}"
        told = ["--rm", "--runtime", "io.containerd.mgpu.v2", "--annotation", MEMORY]
        assert "2048 MB" in ctd.ctr("run", *NO_LIMITS, *told, IMAGE_NAME, name, *LOOK)
    finally:
        assert uninstall("containerd").status == 0
    assert not shim.is_symlink()


@pytest.fixture
def plain_podman(pod: Podman, own_etc: None) -> Iterator[Callable[..., Done]]:
    """podman as an operator has it: it reads drop-ins only where no CONTAINERS_CONF stands in for all of
    them.
    """
    main = Path("/etc/containers/containers.conf")
    main.write_text((pod.home / "containers.conf").read_text())
    env = {"CONTAINERS_STORAGE_CONF": pod.env["CONTAINERS_STORAGE_CONF"], "TMPDIR": pod.env["TMPDIR"]}

    def start(runtime: str, *words: str) -> Done:
        told = ["run", "--rm", *pod.run_options, *words]
        return attempt("podman", "--runtime", runtime, *told, env=env)

    yield start
    assert uninstall("podman").status == 0
    main.unlink()
    assert not Path("/etc/containers/containers.conf.d/99-mgpu.conf").exists()


ASKING = ("--annotation", MEMORY, IMAGE_NAME)


def test_podman_finds_the_runtime_by_name(plain_podman: Callable[..., Done], node: Arbiter) -> None:
    install("podman")
    assert "2048 MB" in plain_podman("mgpu", *ASKING, *LOOK).out
    assert plain_podman("runc", *ASKING, "echo", "plain").out == "plain\n", "podman's own runtimes are gone"
    absent = [plain_podman(name, IMAGE_NAME, "/absent") for name in ("runc", "mgpu")]
    assert [done.status for done in absent] == [127, 127]
    by_runc, by_mgpu = (done.err.splitlines()[-1] for done in absent)
    assert by_mgpu == by_runc.replace("runc:", "mgpu:", 1), "podman shows the runtime's line raw"


def test_podman_has_its_own_runtimes_and_our_hook(plain_podman: Callable[..., Done], node: Arbiter) -> None:
    install("podman", "--hooks")
    for runtime in ("runc", "crun"):
        done = plain_podman(runtime, *ASKING, *LOOK)
        assert "2048 MB" in done.out, str(done)
    assert plain_podman("runc", IMAGE_NAME, "echo", "plain").out == "plain\n"
    refused = plain_podman("runc", "--annotation", "mgpu.dev/memory-mib=17", IMAGE_NAME, "true")
    assert 'mgpu: mgpu.dev/memory-mib is "17"' in refused.err, str(refused)
    # One way at a time: the hook has rewritten what a runtime of ours would be given.
    install("podman", "--no-hooks")
    assert plain_podman("runc", *ASKING, "echo", "plain").out == "plain\n"


def test_hook_does_not_stand_in_the_way_of_other_users(node: Arbiter) -> None:
    """Their podman reads the same configuration."""
    install("podman", "--hooks")
    try:
        hook = json.loads(podman.HOOK.read_text())["hook"]
        plain = json.dumps({"ociVersion": "1.0.2", "process": {}, "annotations": {}})
        asking = json.dumps({"ociVersion": "1.0.2", "annotations": {"mgpu.dev/memory-mib": "512"}})
        argv = [
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            hook["path"],
            *hook["args"][1:],
        ]
        assert run(*argv, stdin=plain) == plain
        refused = attempt(*argv, stdin=asking)
        assert (refused.status, refused.out, refused.err.count("\n")) == (1, "", 1), str(refused)
    finally:
        assert uninstall("podman").status == 0


def test_install_all_takes_less_than_two_seconds(own_etc: None) -> None:
    before = os.times()
    install("all")
    after = os.times()
    assert uninstall("all").status == 0
    # The processor's time: the machine may be busy with something else. The bench tells how long it takes.
    took_s = after.children_user + after.children_system - before.children_user - before.children_system
    assert took_s < MOST_S


def test_uninstall_leaves_no_file(own_etc: None) -> None:
    left = [path for folder in ("/etc", BIN) for path in Path(folder).rglob("*mgpu*")]
    assert left == []
