"""podman, as it and its configuration describe it. It passes annotations on."""

import json
import tomllib
from collections.abc import Iterator
from typing import Any

from mgpu_cli.doctor.engines import is_ours
from mgpu_cli.doctor.finding import Finding, Group, fail, ok, warn
from mgpu_cli.doctor.host import Host, NoAnswerError

# Later ones over earlier ones: containers.conf(5).
FILES = ("/usr/share/containers/containers.conf", "/etc/containers/containers.conf")
DROP_INS = "/etc/containers/containers.conf.d"
HOOK_DIRS = ("/usr/share/containers/oci/hooks.d",)


def _engine(host: Host) -> tuple[dict[str, Any], list[str]]:
    """The runtimes of its configuration and its hook folders; NoAnswerError for malformed TOML."""
    runtimes: dict[str, Any] = {}
    folders: list[str] = []
    drop_ins = sorted(host.path(DROP_INS).glob("*.conf"))
    for path in [*map(host.path, FILES), *drop_ins]:
        try:
            document = tomllib.loads(path.read_text())
        except OSError:
            continue
        except ValueError as error:
            raise NoAnswerError(f"{path}: {error}") from error
        engine = document.get("engine", {})
        runtimes |= engine.get("runtimes", {})
        folders = engine.get("hooks_dir", folders)
    return runtimes, folders or [*HOOK_DIRS]


def _precreate(host: Host, folders: list[str]) -> dict[str, str]:
    """Our program by the hook's file; a file hides its namesakes in earlier folders (oci-hooks(5))."""
    files = {path.name: path for folder in folders for path in sorted(host.path(folder).glob("*.json"))}
    found = {}
    for path in files.values():
        try:
            hook = json.loads(path.read_text())
            program, stages = hook["hook"]["path"], hook["stages"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if is_ours(program) and "precreate" in stages:
            found[f"/{path.relative_to(host.path('/'))}"] = program
    return found


def known_runtime(host: Host) -> Iterator[Finding]:
    program = host.which("podman")
    if program is None:
        return
    silent = ""
    try:
        named, folders = _engine(host)
    except NoAnswerError as error:
        yield warn("podman-silent", f"podman: {error}", "", "podman info")
        return
    try:
        info = json.loads(host.run([program, "info", "--format", "json"]))
        version, chosen = f"podman {info['version']['Version']}", info["host"]["ociRuntime"]
    except NoAnswerError as error:
        # On a busy node it takes longer; what its configuration says holds all the same.
        version, chosen, silent = "podman", {}, str(error)
    except (ValueError, KeyError, TypeError):
        yield warn("podman-odd", "podman says nothing of its runtime", "", "podman info")
        return
    ours = {
        name: path
        for name, paths in named.items()
        for path in (paths if isinstance(paths, list) else [])
        if is_ours(path)
    }
    for name, path in ours.items():
        if host.is_program(path):
            yield ok("podman-runtime", f"{version} has mgpu as --runtime {name}")
        else:
            yield fail(
                "podman-runtime-path",
                f"podman's runtime {name} is {path}, which is not there",
                "containers with it do not start",
                "mgpu install podman",
            )
    hooks = _precreate(host, folders)
    yield from _hooks(host, hooks, version)
    if hooks:
        return
    if silent and not ours:
        yield warn("podman-silent", f"podman: {silent}", "", "podman info")
    elif not ours and is_ours(chosen.get("path")):
        yield ok("podman-runtime", f"{version} uses mgpu by default")
    elif not ours:
        yield warn(
            "podman-runtime",
            f"{version} knows no runtime of mgpu's",
            "its containers need --runtime with the whole path to have a share of a GPU",
            "mgpu install podman",
        )


def _hooks(host: Host, hooks: dict[str, str], version: str) -> Iterator[Finding]:
    for file, program in hooks.items():
        if host.is_program(program):
            yield ok("podman-hook", f"{version} has every container looked at by the hook {file}")
        else:
            yield fail(
                "podman-hook-path",
                f"podman's hook {file} is {program}, which is not there",
                "no container of podman's starts",
                "mgpu install podman --hooks",
            )


GROUP = Group("podman", (known_runtime,))
