"""What Docker and podman call a container is what metrics call it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.arbiter import Arbiter
from tests.support.dockerd import Dockerd
from tests.support.podman import Podman
from tests.support.scrape import scrape
from tests.support.waiting import until

IMAGE, LASTS = "mgpu-test", ("sleep", "1000")


@contextmanager
def asked_at_its_own_place(docker: Dockerd) -> Iterator[None]:
    place = Path("/run/docker.sock")
    place.symlink_to(docker.home / "d.sock")
    try:
        yield
    finally:
        place.unlink()


def named(mgpu: Arbiter) -> set[str]:
    return set(
        re.findall(
            r'^mgpu_container_lost_listener{.*,container="([^"]*)"', scrape(mgpu.root).text, re.MULTILINE
        )
    )


def test_series_have_the_names_of_docker_and_podman(mgpu: Arbiter, docker: Dockerd, pod: Podman) -> None:
    with asked_at_its_own_place(docker):
        options = ("--network=none", "-e", "MGPU_MEMORY_MIB=512")
        one = docker.docker(
            "run", "--detach", "--name=web", "--runtime=mgpu", *options, IMAGE, *LASTS
        ).strip()
        pod.podman(
            "--runtime", mgpu.runtime, "run", "--detach", "--name=batch", *pod.run_options,
            "--annotation", "mgpu.dev/memory-mib=512", IMAGE, *LASTS,
        )  # fmt: skip
        until(lambda: named(mgpu) == {"web", "batch"}, f"the series have names, not {one}")
        docker.docker("rm", "--force", "web")
        pod.podman("rm", "--force", "batch")
        until(lambda: named(mgpu) == set(), "they end with their containers")
