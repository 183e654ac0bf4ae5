"""Whose an installed file is: each product is a package of its own, and the node's has what no other has."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath


@dataclass(frozen=True)
class Product:
    """python: its packages. files: what else is its own, below the prefix."""

    name: str
    summary: str
    text: str
    python: frozenset[str] = frozenset()
    files: tuple[str, ...] = ()

    def owns(self, path: PurePath) -> bool:
        """path: below the prefix."""
        parts = path.parts
        if "site-packages" in parts[:-1]:
            return parts[parts.index("site-packages") + 1] in self.python
        return any(path.is_relative_to(own) for own in self.files)


NODE = Product(
    "mgpu",
    "shares NVIDIA GPUs between containers",
    "Hard memory caps, shares of time and preemption with the stock driver, and\n"
    "nothing injected into the container. Installing it points the engines of this\n"
    "node at mgpu and starts its services; removing it undoes that.",
)
SIMULATOR = Product(
    "mgpu-sim",
    "simulated GPUs for mgpu",
    "A GPU with its driver as one process, the two libraries by which programs use\n"
    "it, and a load for it: mgpu up --sim v100-16:2 needs no GPU.",
    frozenset({"sim"}),
    ("libexec/mgpu/mgpu-simcard", "libexec/mgpu/mgpu-load", "lib/mgpu/sim"),
)
CLUSTER = Product(
    "mgpu-cluster",
    "what a cluster runs beside mgpu",
    "The programs of mgpu's images, its manifests and chart, and kubectl mgpu. Pods\n"
    "run the images: this is for machines that run the programs without them.",
    frozenset({"cluster"}),
)


def of(path: PurePath) -> Product:
    """path: below the prefix."""
    return next((product for product in (SIMULATOR, CLUSTER) if product.owns(path)), NODE)


ALL = (NODE, SIMULATOR, CLUSTER)


def files(tree: Path) -> Iterator[Path]:
    """Of all products, below `tree`."""
    for path in sorted(tree.rglob("*")):
        if path.is_symlink() or not path.is_dir():
            yield path.relative_to(tree)
