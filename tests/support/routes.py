"""The ways of a container from an engine to mgpu, behind one interface, so that one test looks at all of
them.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from install import podman, precreate_hook
from oci_specs import paths
from tests.support import cri
from tests.support.arbiter import Arbiter
from tests.support.commands import CommandFailedError, Done
from tests.support.containerd import NO_LIMITS
from tests.support.cri import Kubelet, OnContainerd
from tests.support.dockerd import RUNTIME, Dockerd
from tests.support.places import IMAGE_NAME
from tests.support.podman import Podman
from tests.support.programs import INSIDE as PROGRAMS
from tests.support.programs import Programs

LOAD = "/mgpu-load"
RUNC, CRUN = "runc", "crun"

Request = Mapping[Literal["memory-mib", "qos", "core", "gpus"], str]


class Box(Protocol):
    """A container that runs until it is removed or ends by itself."""

    @property
    def id(self) -> str:
        """As mgpud lists it."""

    def execute(self, *command: str) -> str:
        """What a second process in it printed; CommandFailedError with all of it if its status is not 0."""

    def try_execute(self, *command: str) -> str:
        """The same whatever its status."""

    def output(self) -> str:
        """What its program has printed so far."""

    def remove(self) -> None:
        """Removed as an operator does who does not wait."""


class Engine(Protocol):
    @property
    def home(self) -> Path:
        """Its folder, whose name is also that of the cgroup that its containers are in."""


class Route(Protocol):
    """One way. below: the runtime that mgpu's is above."""

    @property
    def below(self) -> str: ...

    @property
    def engine(self) -> Engine: ...

    def start(self, mgpu: Arbiter | None, request: Request, *command: str) -> Box:
        """A container of the test image that asks for a GPU, with the test programs and mgpu-load in it.

        mgpu None: the same by the engine's plain runtime, to which the request says nothing.
        """


@contextmanager
def started(route: Route, mgpu: Arbiter, request: Request, *command: str) -> Iterator[Box]:
    """A container for the length of a block."""
    box = route.start(mgpu, request, *command)
    try:
        yield box
    finally:
        box.remove()


def new_name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def as_environment(request: Request) -> dict[str, str]:
    """The request as Docker's users write it: its containers have no annotations."""
    return {f"MGPU_{key.upper().replace('-', '_')}": value for key, value in request.items()}


def as_annotations(request: Request) -> dict[str, str]:
    return {f"mgpu.dev/{key}": value for key, value in request.items()}


def _mounts(programs: Programs) -> list[tuple[Path, str]]:
    return [(programs.folder, PROGRAMS), (Path(paths.libexec("mgpu-load")), LOAD)]


def _volumes(programs: Programs) -> list[str]:
    return [word for source, inside in _mounts(programs) for word in ("--volume", f"{source}:{inside}:ro")]


@dataclass(frozen=True)
class _Cli:
    """A container that one program of commands looks after."""

    id: str
    name: str
    attempt: Callable[..., Done]
    words_to_execute: Callable[[], tuple[str, ...]]
    words_to_remove: tuple[tuple[str, ...], ...]
    printed: Callable[[], str]

    def execute(self, *command: str) -> str:
        return _well(self.attempt(*self.words_to_execute(), self.name, *command)).out

    def try_execute(self, *command: str) -> str:
        return self.attempt(*self.words_to_execute(), self.name, *command).out

    def output(self) -> str:
        return self.printed()

    def remove(self) -> None:
        for words in self.words_to_remove:
            done = self.attempt(*words, self.name)
            # crun, of one that ended by itself as it was to be killed: the next try removes it.
            _well(self.attempt(*words, self.name) if "No such process" in done.err else done)


def _well(done: Done) -> Done:
    if done.status != 0:
        raise CommandFailedError(str(done))
    return done


@dataclass(frozen=True)
class ByDocker:
    """dockerd --runtime."""

    engine: Dockerd
    programs: Programs
    below: str = RUNC

    def start(self, mgpu: Arbiter | None, request: Request, *command: str) -> Box:
        if mgpu is not None:
            self.engine.point_at(mgpu.runtime)
        name, runtime = new_name(), RUNTIME if mgpu else self.below
        made = self.engine.docker(*self._run(runtime, name, request), "--detach", IMAGE_NAME, *command)
        return _Cli(
            made.strip(),
            name,
            self.engine.try_docker,
            lambda: ("exec",),
            (("rm", "--force"),),
            lambda: self.engine.docker("logs", name),
        )

    def _run(self, runtime: str, name: str, request: Request) -> list[str]:
        env = [
            word for key, value in as_environment(request).items() for word in ("--env", f"{key}={value}")
        ]
        options = ["--name", name, "--network=none", f"--runtime={runtime}"]
        return ["run", *options, *_volumes(self.programs), *env]


@dataclass(frozen=True)
class ByCtr:
    """ctr run, with the shim or with --runc-binary."""

    engine: OnContainerd
    programs: Programs
    shim: bool
    below: str = RUNC

    def start(self, mgpu: Arbiter | None, request: Request, *command: str) -> Box:
        if mgpu is not None:
            self.engine.point_at(mgpu.runtime)
        name = new_name()
        log = self.engine.home / f"{name}.log"
        ctd = self.engine.containerd
        ctd.ctr(*self._run(mgpu, name, request), "--log-uri", f"file://{log}", IMAGE_NAME, name, *command)
        return _Cli(
            name,
            name,
            ctd.try_ctr,
            lambda: ("task", "exec", "--exec-id", new_name()),
            (("task", "delete", "--force"), ("container", "delete")),
            log.read_text,
        )

    def _run(self, mgpu: Arbiter | None, name: str, request: Request) -> list[str | Path]:
        words: list[str | Path] = [
            "run",
            *NO_LIMITS,
            "--detach",
            "--cgroup",
            f"/{self.engine.home.name}/{name}",
        ]
        if mgpu is None:
            words += ["--runtime", cri.PLAIN_RUNTIME]
        elif self.shim:
            words += ["--runtime", cri.SHIM_RUNTIME]
        else:
            words += ["--runc-binary", mgpu.runtime]
        for source, inside in _mounts(self.programs):
            words += ["--mount", f"type=bind,src={source},dst={inside},options=rbind:ro"]
        for key, value in as_annotations(request).items():
            words += ["--annotation", f"{key}={value}"]
        return words


@dataclass(frozen=True)
class _InPod:
    engine: Kubelet
    pod: cri.Pod

    @property
    def id(self) -> str:
        return self.pod.container

    def execute(self, *command: str) -> str:
        done = self.engine.execute(self.id, *command)
        if done.status != 0:
            raise CommandFailedError(f"{command}: {done}")
        return done.out

    def try_execute(self, *command: str) -> str:
        return self.engine.execute(self.id, *command).out

    def output(self) -> str:
        return self.engine.output(self.pod, "main")

    def remove(self) -> None:
        self.engine.remove(self.pod)


@dataclass(frozen=True)
class ByCri:
    """A kubelet's calls, with a handler."""

    engine: Kubelet
    programs: Programs
    handler: str
    below: str = RUNC

    def start(self, mgpu: Arbiter | None, request: Request, *command: str) -> Box:
        if mgpu is not None:
            self.engine.point_at(mgpu.runtime)
        mounts: list[dict[str, Any]] = [
            {"host_path": str(source), "container_path": inside, "readonly": True}
            for source, inside in _mounts(self.programs)
        ]
        spec = cri.pod_of(*command, annotations=as_annotations(request))
        return _InPod(self.engine, self.engine.run(spec, self.handler if mgpu else cri.PLAIN, mounts=mounts))


@dataclass(frozen=True)
class ByPodman:
    """podman --runtime, or its own runtime with a precreate hook."""

    engine: Podman
    programs: Programs
    below: str
    hook: bool = False

    def start(self, mgpu: Arbiter | None, request: Request, *command: str) -> Box:
        name = new_name()
        told = self._engine(mgpu)
        made = self.engine.podman(*told, *self._run(name, request), "--detach", IMAGE_NAME, *command)
        return _Cli(
            made.strip(),
            name,
            lambda *words: self.engine.try_podman(*told, *words),
            lambda: ("exec",),
            (("rm", "--force", "--time", "0"),),
            lambda: self.engine.podman("logs", name),
        )

    def _engine(self, mgpu: Arbiter | None) -> list[str | Path]:
        if mgpu is None:
            return ["--runtime", self.below]
        if not self.hook:
            return ["--runtime", mgpu.runtime]
        return ["--runtime", self.below, "--hooks-dir", precreate_hooks(mgpu)]

    def _run(self, name: str, request: Request) -> list[str]:
        told = [
            word
            for key, value in as_annotations(request).items()
            for word in ("--annotation", f"{key}={value}")
        ]
        return ["run", "--name", name, *self.engine.run_options, *_volumes(self.programs), *told]


def precreate_hooks(mgpu: Arbiter) -> Path:
    """A folder for podman's --hooks-dir, with what mgpu install podman --hooks writes."""
    folder = mgpu.root / "hooks.d"
    folder.mkdir(exist_ok=True)
    # In one step: others start containers meanwhile. podman reads what is called *.json.
    new = folder / new_name()
    new.write_text(precreate_hook.text(str(mgpu.runtime)))
    new.rename(folder / podman.HOOK.name)
    return folder
