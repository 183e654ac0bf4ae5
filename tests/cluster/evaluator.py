"""The API server's own evaluator of admission policies: a program of ours over Debian's packages of its
sources.
"""

import functools
import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.commands import run
from tests.support.places import REPOSITORY
from tools.debian_archive import Archive, Unavailable

SOURCE = REPOSITORY / "tests" / "cluster" / "cel"
ROOT = REPOSITORY / "build" / "cluster"
WANTED = ("golang-go", "golang-k8s-apiserver-dev")
# What these need for other programs than ours, and what is large: none of it is imported on our way.
UNNEEDED = frozenset(
    {
        "golang-etcd-server-dev",
        "golang-github-coreos-go-oidc-dev",
        "golang-github-klauspost-compress-dev",
        "golang-github-kubernetes-cri-api-dev",
        "golang-github-onsi-ginkgo-dev",
        "golang-github-onsi-ginkgo-v2-dev",
        "golang-github-prometheus-sigv4-dev",
        "golang-golang-x-tools",
        "golang-golang-x-tools-dev",
        "golang-google-cloud-compute-metadata-dev",
        "golang-google-grpc-dev",
        "golang-k8s-kms-dev",
        "golang-k8s-sigs-apiserver-network-proxy-dev",
        "golang-opentelemetry-contrib-dev",
    }
)
_ARCHIVE = Archive(ROOT / "debian", "deb", ("sid",), "main")

Object = dict[str, Any]


def packages(graph: str) -> list[str]:
    """The packages to bring, by what `apt-cache depends --recurse` prints."""
    needs: dict[str, list[str]] = {}
    name = ""
    for line in graph.splitlines():
        if not line.startswith((" ", "|")):
            name = line.strip("<>")
        elif found := re.match(r"[ |]*(?:Pre)?Depends: (golang-\S+)", line):
            needs.setdefault(name, []).append(found[1])
    brought: dict[str, None] = {}
    pending = list(WANTED)
    while pending:
        package = pending.pop()
        if package not in brought and package not in UNNEEDED:
            brought[package] = None
            pending += needs.get(package, [])
    return sorted(brought)


def _bring() -> Path:
    """The sources and the compiler, unpacked; they are brought once. Unavailable: the archive does not
    answer.
    """
    tree = ROOT / "tree"
    if tree.is_dir():
        return tree
    address = _ARCHIVE.update()
    no = [
        f"--no-{kind}" for kind in ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    ]
    graph = _ARCHIVE.run("apt-cache", "depends", "--recurse", *no, *WANTED)
    if graph.returncode != 0:
        raise Unavailable(f"{address} does not answer, or has none of {', '.join(WANTED)}")
    folder = ROOT / "packages"
    folder.mkdir(exist_ok=True)
    done = _ARCHIVE.run("apt-get", "download", *packages(graph.stdout), cwd=folder)
    if done.returncode != 0:
        raise Unavailable(f"packages cannot be had: {done.stderr.strip().splitlines()[-1]}")
    half = ROOT / "half"
    for package in sorted(folder.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", package, half], check=True)
        package.unlink()
    return half.rename(tree)


@functools.cache
def program() -> Path:
    """The evaluator, built where its source is newer. Unavailable: as _bring."""
    tree = _bring()
    made = ROOT / "cel"
    source = SOURCE / "main.go"
    if not made.is_file() or made.stat().st_mtime < source.stat().st_mtime:
        [go] = tree.glob("usr/lib/go-*/bin/go")
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(ROOT),
            "GOROOT": str(go.parents[1]),
            "GOPATH": str(tree / "usr/share/gocode"),
            "GOCACHE": str(ROOT / "cache"),
            "GO111MODULE": "off",
            "GOTOOLCHAIN": "local",
            "CGO_ENABLED": "0",
        }
        subprocess.run(["nice", go, "build", "-o", made, "."], cwd=SOURCE, env=environment, check=True)
    return made


def review(
    objects: Sequence[Object], reviews: Sequence[Mapping[str, Any]], version: str = ""
) -> list[Object]:
    """What the validating policies among the objects make of each review: object, old and patches if any.

    version: of Kubernetes, whose CEL the expressions have to do with; its own where it is "".
    """
    document = {
        "version": version,
        "validating": [each for each in objects if each["kind"] == "ValidatingAdmissionPolicy"],
        "reviews": reviews,
    }
    outcomes: list[Object] = json.loads(run(program(), stdin=json.dumps(document)))
    return outcomes
