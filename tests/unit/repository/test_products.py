"""The products' packages: each file is in one of them, and the node's does without the others."""

import re
import sys
from importlib import metadata
from pathlib import Path, PurePath

import pytest

from tests.support.commands import run
from tests.support.places import PREFIX, REPOSITORY
from tools.package import products
from tools.package.products import CLUSTER, NODE, SIMULATOR
from tools.portable import tree as portable

# What only a cluster's programs may import.
OF_CLUSTER = ("aiohttp", "cryptography", "httpx2", "lightkube", "numpy")
IMPORTS = """
import importlib, pkgutil, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(name)

MISSING = set(sys.argv[1].split())
sys.meta_path.insert(0, Missing())
for name in sys.argv[2:]:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        # These run.
        if not module.name.endswith("__main__") and module.name != "runtime_hook.main":
            importlib.import_module(module.name)
print("imported", len(sys.modules))
"""


def installed() -> list[PurePath]:
    """As they lie below the prefix."""
    site = PurePath("lib", portable.VERSION, "site-packages")
    python = [site / file for file in metadata.distribution("mgpu").files or () if file.parts[0] != ".."]
    rest = [
        path.relative_to(PREFIX)
        for folder in ("lib/mgpu", "libexec/mgpu")
        for path in (PREFIX / folder).rglob("*")
        if path.is_file()
    ]
    return [*python, *rest]


def test_every_installed_package_and_program_is_of_one_product() -> None:
    found: dict[str, set[str]] = {product.name: set() for product in products.ALL}
    for path in installed():
        if not any(part == "__pycache__" or part.endswith(".dist-info") for part in path.parts):
            inside = "site-packages" in path.parts
            name = path.parts[3] if inside else path.relative_to(path.parts[0] + "/mgpu").parts[0]
            found[products.of(path).name].add(name)
    assert found == {
        "mgpu": {
            "containerd-shim-mgpu-v2",
            "containerd_api",
            "install",
            "libmgpu_engine.so",
            "mgpu-checkpoint",
            "mgpu-holder",
            "mgpu-hook",
            "mgpu-listener",
            "mgpu-runtime",
            "mgpu_cli",
            "native_sched",
            "oci_specs",
            "path",
            "placement",
            "runtime_hook",
        },
        "mgpu-sim": {"mgpu-load", "mgpu-simcard", "sim"},
        "mgpu-cluster": {"cluster"},
    }


@pytest.mark.parametrize(
    ("path", "product"),
    [
        ("lib/python3.13/site-packages/sim/cdi.py", SIMULATOR),
        ("lib/mgpu/sim/libcuda.so.1", SIMULATOR),
        ("lib/python3.13/site-packages/cluster/node/main.py", CLUSTER),
        ("lib/python3.13/site-packages/simple.py", NODE),
        ("lib/python3.13/site-packages/rich/sim/x.py", NODE),
        ("lib/mgpu/libmgpu_engine.so", NODE),
        ("bin/python3", NODE),
    ],
)
def test_file_belongs_to_product(path: str, product: products.Product) -> None:
    assert products.of(PurePath(path)) == product


def rows(page: str, heading: str) -> list[list[str]]:
    """Cells of the first table below the heading, without its head."""
    below = (REPOSITORY / page).read_text().partition(f"\n## {heading}\n")[2]
    table = re.findall(r"^\|(.+)\|$", below.partition("\n## ")[0], re.MULTILINE)
    return [[cell.strip(" `") for cell in row.split("|")] for row in table[2:]]


def test_pages_name_the_products() -> None:
    names = {product.name for product in products.ALL}
    assert names < {row[0] for row in rows("README.md", "Five products")}
    folders = {row[0]: row[1] for row in rows("docs/architecture.md", "Folders, and what each may import")}
    packages = [path.parent.name for path in REPOSITORY.glob("*/__init__.py")]
    shipped = [name for name in packages if name not in {"demo", "lab", "load", "tests", "tools"}]
    assert len(shipped) > 5
    assert {name: folders.get(name) for name in shipped} == {
        name: products.of(PurePath("lib/python3/site-packages", name, "x.py")).name for name in shipped
    }


def test_folder_of_programs_has_none_of_others() -> None:
    [folder] = re.findall(r"export PATH=\$PWD/(\S+):\$PATH", (REPOSITORY / "README.md").read_text())
    found = [path.name for path in (PREFIX.parent / PurePath(folder).name).iterdir()]
    assert {"mgpu", "mgpud"} <= set(found)
    assert all(name.startswith("mgpu") for name in found)


def test_node_s_package_imports_nothing_of_the_others() -> None:
    packages = sorted(path.name for path in REPOSITORY.iterdir() if (path / "__init__.py").exists())
    own = [
        name
        for name in packages
        if products.of(Path("lib/python3/site-packages", name, "x.py")) == NODE
        and (PREFIX / "lib" / portable.VERSION / "site-packages" / name).is_dir()
    ]
    assert {"native_sched", "mgpu_cli", "runtime_hook"} <= set(own)
    others = " ".join([*SIMULATOR.python, *CLUSTER.python, *OF_CLUSTER])
    assert run(sys.executable, "-I", "-c", IMPORTS, others, *own).startswith("imported ")
