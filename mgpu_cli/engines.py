"""What to tell a container engine so that it uses a mgpu-runtime."""

import shlex

from mgpu_cli.state import StateDir


def snippets(state: StateDir) -> list[tuple[str, list[str]]]:
    """(engine, lines to copy) for the engines that take a runtime by path."""
    path = str(state.runtime)
    runtime = shlex.quote(path)
    root = shlex.quote(str(state.path))
    return [
        (
            "docker (daemon.json, then reload dockerd)",
            [
                f'{{"runtimes": {{"mgpu": {{"path": "{path}"}}}}}}',
                "docker run --runtime=mgpu -e MGPU_MEMORY_MIB=4096 -e MGPU_GPUS=1 IMAGE COMMAND",
            ],
        ),
        (
            "containerd",
            [
                f"ctr run --rm --runc-binary {runtime} --annotation aliyun.com/gpu-mem=8 "
                "--annotation aliyun.com/gpu-count=2 IMAGE ID COMMAND"
            ],
        ),
        (
            "podman",
            [f"podman --runtime {runtime} run --rm --annotation mgpu.dev/memory-mib=4096 IMAGE COMMAND"],
        ),
        (
            "no engine",
            [f"mgpu run --root {root} --memory-mib 4096 --gpus 1 ROOTFS COMMAND"],
        ),
    ]
