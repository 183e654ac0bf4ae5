"""mgpu itself on the card: its programs from the kit, and containers whose root is the machine's own,
read-only.
"""

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mgpu_cli import bundle, runtime_files
from mgpu_cli.kernel import die_with_parent
from mgpu_cli.state import StateDir
from oci_specs import paths
from oci_specs.seccomp.notified import NOTIFY_CUBES, REFUSED_CUBES
from runtime_hook import control
from tests.gpu import cdi
from tests.gpu.backend import PROGRAMS, SIMULATED_CARDS, find

Json = dict[str, Any]
START_S, END_S = 20.0, 30.0
REGISTERS = "/sys/bus/pci/drivers/nvidia/*/resource0"


class ProductError(Exception):
    """It does not start; one line."""


@dataclass
class Run:
    """A container that has ended."""

    status: int
    out: str

    def document(self) -> Json:
        """The last line that is a JSON object; empty where there is none."""
        for line in reversed(self.out.splitlines()):
            if line.startswith("{"):
                found: Json = json.loads(line)
                return found
        return {}


class Product:
    """Holder and mgpud over the driver, or over simulated cards. Use as a context.

    lends: offline may hold what online leaves. blind: mgpud cannot map the cards' registers, as where the
    kernel is locked down, and so reads no engine status.
    """

    def __init__(
        self,
        driver: str,
        folder: Path,
        *,
        runtime: str | None = None,
        schedule: bool = True,
        blind: bool = False,
        lends: bool = False,
    ) -> None:
        self.driver = driver
        self.schedule = schedule
        self.blind = blind
        self.lends = lends
        self.runtime = runtime
        self.folder = folder
        self.state = StateDir(folder / "r")
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.state.create()
        (self.state.path / "node.toml").write_text(
            'containerd = []\ncdi_dirs = []\nhold_ms = 100\npolicy = "native-burst-share"\n'
            f"schedule = {str(self.schedule).lower()}\noffline_overcommit = {str(self.lends).lower()}\n"
        )
        if self.runtime:
            runtime_files.write(self.state, self.runtime)
        try:
            if self.driver == "sim":
                from sim import cdi as simulated

                self._start(
                    [
                        paths.libexec("mgpu-simcard"),
                        "--dir",
                        str(self.state.sim),
                        "--cards",
                        f"h200:{SIMULATED_CARDS}",
                        "--engine-status",
                        str(int(not self.blind)),
                    ],
                    "simcard",
                )
                simulated.write(self.state.cdi, self.state.sim / "admin.sock")
            else:
                from native_sched.daemon.node import inventory

                cdi.write(self.state.cdi, inventory.nvml()[1])
            sockets = [
                "--seccomp-socket",
                str(self.state.seccomp),
                "--mgpud-socket",
                str(self.state.holder),
            ]
            self._start([paths.libexec("mgpu-holder"), *sockets], "holder")
            daemon = [sys.executable, "-P", "-m", "native_sched.daemon.main", "--root", str(self.state.path)]
            daemon += ["--driver", self.driver]
            self._start(without_registers(daemon, REGISTERS) if self.blind else daemon, "mgpud")
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start(self, argv: list[str], name: str) -> None:
        """Until it says that it is ready, on its first line."""
        log = open(self.folder / f"{name}.log", "w")  # noqa: SIM115 - the process's
        parent = os.getpid()
        process = subprocess.Popen(
            argv,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            preexec_fn=lambda: die_with_parent(9, parent),
        )
        self._stack.callback(_end, process)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            process.wait(START_S)
            log.close()
            raise ProductError(f"{name} does not start: {(self.folder / f'{name}.log').read_text()[-600:]}")

    def ask(self, verb: str, **members: Any) -> Json:
        return control.call(str(self.state.control), verb, **members)

    def paced(self, amount: int) -> int:
        """How much of something is done: a simulated card is there to see that it is done at all."""
        return amount if self.driver == "nvidia" else max(1, amount // 4)

    def card_used_mib(self) -> int:
        """What the driver itself says is in use on the first card."""
        if self.driver == "sim":
            from sim import cards

            return cards.account(self.state.sim / "admin.sock").cards[0].used_bytes >> 20
        import pynvml

        pynvml.nvmlInit()
        try:
            return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used >> 20)
        finally:
            pynvml.nvmlShutdown()

    def card_count(self) -> int:
        return len(self.ask("list")["cards"])

    def first_card(self) -> tuple[bytes, int]:
        """(UUID, RM's number) of the first card."""
        from native_sched.daemon.node import inventory

        found = inventory.nvml() if self.driver == "nvidia" else inventory.simulated(str(self.state.sim))
        card = found[1][0]
        return bytes.fromhex(card.uuid.partition("-")[2].replace("-", "")), card.gpu_id

    def containers(self) -> list[Json]:
        found: list[Json] = self.ask("list")["containers"]
        return found

    def until_empty(self) -> None:
        """One that has ended has its grant for some moments more."""
        end = time.monotonic() + END_S
        while self.containers() and time.monotonic() < end:
            time.sleep(0.02)

    @contextmanager
    def container(
        self,
        argv: Sequence[str],
        *,
        qos: str = "online",
        memory_mib: int | None = 4309,
        cards: str = "0",
        host_network: bool = False,
        reclaimable: bool = False,
        capabilities: str = "",
        told: bool = False,
        pids: int = 0,
    ) -> "Iterator[Container]":
        """A running container with so much memory of these cards in all, or with whole cards (None); killed
        at the end, if it has not ended. reclaimable: its memory gives way. capabilities: the driver's; whole
        cards have all of them where none is named. told: it reads what is written to its process. pids: at
        most so many processes, if not 0.
        """
        if memory_mib is None:
            self.until_empty()
        with ExitStack() as stack:
            name = f"gpu-{secrets.token_hex(4)}"
            env = {
                "MGPU_QOS": qos,
                "MGPU_GPUS": str(1 + cards.count(",")),
                "NVIDIA_VISIBLE_DEVICES": cards,
            }
            if memory_mib is not None:
                env["MGPU_MEMORY_MIB"] = str(memory_mib)
            if reclaimable:
                env["MGPU_MEMORY_RECLAIMABLE"] = "true"
            if capabilities or memory_mib is None:
                env["NVIDIA_DRIVER_CAPABILITIES"] = capabilities or "all"
            if self.runtime:
                made = stack.enter_context(_bundle(self.driver, name, argv, env, host_network, pids))
                command = [
                    str(self.state.runtime),
                    "--root",
                    str(self.state.runc_root),
                    "run",
                    "--bundle",
                    str(made),
                    name,
                ]
                process = stack.enter_context(
                    _popen(command, stdin=subprocess.PIPE if told else subprocess.DEVNULL)
                )
                stack.callback(self._delete, name)
            else:
                process = stack.enter_context(self._plain(name, argv, env))
            yield Container(name, process)

    def _delete(self, name: str) -> None:
        command = [str(self.state.runtime), "--root", str(self.state.runc_root), "delete", "--force", name]
        subprocess.run(command, capture_output=True, check=False, timeout=END_S)

    @contextmanager
    def _plain(self, name: str, argv: Sequence[str], env: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
        """Where no container can be made: the same filter on a plain process, and the verbs a runtime would
        use.
        """
        told = self.folder / f"{name}.json"
        # A container's filter notifies others beside these.
        cubes = [f"{mask:x}:{datum:x}" for mask, datum in NOTIFY_CUBES + REFUSED_CUBES]
        launch = [str(PROGRAMS / "launch"), str(self.state.seccomp), str(told), *cubes, "--", *argv]
        waiting = ["sh", "-c", 'read -r _ && exec "$@"', "sh", *launch]
        with _popen(
            _with_nodes(self.driver, waiting),
            env={**environment(self.driver), **env},
            stdin=subprocess.PIPE,
        ) as process:
            grant = self.ask(
                "admit", container_id=name, bundle=str(self.folder), rootfs="/", annotations={}, env=env, reach=[],
                seccomp_listener=None, runtime_pid=process.pid,
            )["grant"]  # fmt: skip
            state = {
                "ociVersion": "1.0.2",
                "id": name,
                "status": "creating",
                "pid": process.pid,
                "bundle": "/",
            }
            _until_it_reads(process.pid)
            self.ask("bind", nonce=grant["nonce"], state=state)
            told.write_text(
                json.dumps(
                    {
                        "ociVersion": "1.0.2",
                        "fds": ["seccompFd"],
                        "pid": process.pid,
                        "metadata": grant["nonce"],
                        "state": state,
                    }
                )
            )
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.close()
            process.stdin = None
            yield process


@dataclass
class Container:
    name: str
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)

    def line(self) -> str:
        """Its next line."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def end(self, timeout_s: float = END_S) -> Run:
        """What it said, once it has ended by itself; it is killed when it does not."""
        try:
            said, _ = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            said, _ = self.process.communicate()
        return Run(self.process.returncode, said)

    def rest(self) -> Run:
        """What is left of its lines, until it ends by itself: end() misses what line() has read ahead."""
        said = "".join(iter(self.line, ""))
        return Run(self.end().status, said)

    def stop(self) -> Run:
        """SIGTERM, which a runtime in the foreground passes on."""
        self.process.terminate()
        return self.end()


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)
    if process.stdout:
        process.stdout.close()


@contextmanager
def _popen(
    command: list[str], env: dict[str, str] | None = None, stdin: int = subprocess.DEVNULL
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        if process.stdout:
            process.stdout.close()


def without_registers(argv: Sequence[str], pattern: str) -> list[str]:
    """The command where what matches cannot be mapped: the null device is over it, in a mount namespace of
    its own.
    """
    lines = [
        f'for bar in {pattern}; do [ ! -e "$bar" ] || mount --bind /dev/null "$bar"; done',
        'exec "$@"',
    ]
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", "\n".join(lines), "sh", *argv]


def environment(driver: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "LANG")}
    if driver == "sim":
        kept["LD_LIBRARY_PATH"] = str(Path(paths.lib("sim/libcuda.so.1")).parent)
    return kept


def _until_it_reads(pid: int) -> None:
    """Its nodes are made before the shell that reads is there."""
    end = time.monotonic() + START_S
    while not Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sh\0-c\0read"):
        if time.monotonic() > end:
            raise TimeoutError(f"process {pid} has no device nodes after {START_S:.0f} s")
        time.sleep(0.01)


def _with_nodes(driver: str, argv: list[str]) -> list[str]:
    from tests.gpu.backend import simulated_nodes

    return argv if driver == "nvidia" else simulated_nodes(argv)


@contextmanager
def _bundle(
    driver: str,
    name: str,
    argv: Sequence[str],
    env: dict[str, str],
    host_network: bool = False,
    pids: int = 0,
) -> Iterator[Path]:
    """A bundle whose root is the machine's own. A simulated card's libraries have to be mounted over places
    in it, so there it is a layer of its own; NVIDIA's are where they are.
    """
    with ExitStack() as stack:
        if driver == "sim":
            from mgpu_cli import scratch

            folder = stack.enter_context(scratch.bundle_over(Path("/")))
        else:
            folder = stack.enter_context(_root_bound())
        spec = bundle.spec(
            container_id=name,
            rootfs=str(folder / "rootfs"),
            args=argv,
            env=env,
            annotations={},
            terminal=False,
        )
        spec["root"]["readonly"] = True
        if pids:
            spec["linux"]["resources"]["pids"] = {"limit": pids}
        if host_network:
            namespaces = spec["linux"]["namespaces"]
            spec["linux"]["namespaces"] = [one for one in namespaces if one["type"] != "network"]
        spec["mounts"] += [
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]},
            # The kit, which need not be on the root's own file system.
            {"destination": sys.prefix, "type": "bind", "source": sys.prefix, "options": ["rbind", "ro"]},
        ]
        (folder / "config.json").write_text(json.dumps(spec))
        yield folder


@contextmanager
def _root_bound() -> Iterator[Path]:
    folder = Path("/run") / f"mgpu-gpu-{secrets.token_hex(4)}"
    (folder / "rootfs").mkdir(parents=True)
    mounted = subprocess.run(["mount", "--rbind", "--make-rslave", "/", str(folder / "rootfs")], check=False)
    try:
        if mounted.returncode:
            raise ProductError("cannot bind the machine's root")
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", "--recursive", str(folder / "rootfs")], check=False)
        if not os.path.ismount(folder / "rootfs"):
            (folder / "config.json").unlink(missing_ok=True)
            (folder / "rootfs").rmdir()
            shutil.rmtree(folder, ignore_errors=True)


def usable_runtime(folder: Path) -> tuple[str | None, str]:
    """(runtime, why): the first of runc and crun that runs a container here; None: neither, and what the last
    said.
    """
    said = "none is there"
    for name in ("runc", "crun"):
        path = find(name)
        if path is None:
            continue
        with _bundle("nvidia", "probe", ["/bin/true"], {}) as made:
            argv = [
                path,
                "--root",
                str(folder / "probe"),
                "run",
                "--bundle",
                str(made),
                f"probe-{secrets.token_hex(3)}",
            ]
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=END_S)
        if done.returncode == 0:
            return path, path
        said = f"{name}: {(done.stderr or done.stdout).strip()[-300:]}"
    return None, said
