"""Docker, as its daemon describes itself."""

from collections.abc import Iterator

from mgpu_cli.doctor.engines import SHIM_TYPE, is_ours
from mgpu_cli.doctor.finding import Finding, Group, fail, note, ok, warn
from mgpu_cli.doctor.host import Host, NoAnswerError

SOCKET = "/var/run/docker.sock"


def known_runtime(host: Host) -> Iterator[Finding]:
    if not host.is_socket(SOCKET):
        if host.which("dockerd"):
            yield note(
                "docker-stopped", "dockerd is installed and does not run", "", "systemctl start docker"
            )
        return
    try:
        info = host.get(str(host.path(SOCKET)), "/info")
        runtimes = dict(info["Runtimes"])
    except NoAnswerError as error:
        yield warn("docker-silent", f"dockerd does not answer: {error}", "", "systemctl status docker")
        return
    except (KeyError, TypeError, ValueError):
        yield warn("docker-odd", f"what answers at {SOCKET} is not dockerd", "", "docker info")
        return
    version = info.get("ServerVersion", "of no version")
    ours = {
        name: entry
        for name, entry in runtimes.items()
        if isinstance(entry, dict) and (is_ours(entry.get("path")) or entry.get("runtimeType") == SHIM_TYPE)
    }
    if not ours:
        yield warn(
            "docker-runtime",
            f"dockerd {version} knows no runtime of mgpu's",
            "its containers cannot have a share of a GPU",
            "mgpu install docker",
        )
    for name, entry in ours.items():
        path = entry.get("path")
        if path and not host.is_program(path):
            yield fail(
                "docker-runtime-path",
                f"docker's runtime {name} is {path}, which is not there",
                "containers with it do not start",
                "mgpu install docker",
            )
        else:
            yield ok("docker-runtime", f"dockerd {version} has mgpu as --runtime={name}")
    default = info.get("DefaultRuntime")
    if default == "nvidia":
        yield note(
            "docker-default",
            "docker's default runtime is nvidia",
            "containers that name no runtime get whole GPUs past mgpu",
            'take "default-runtime" out of /etc/docker/daemon.json',
        )


GROUP = Group("docker", (known_runtime,))
