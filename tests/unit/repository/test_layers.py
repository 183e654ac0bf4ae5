"""Which package may import which and which C room include which; what the create path must not load at every
start.
"""

import ast
import functools
import itertools
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.commands import run
from tests.support.places import PREFIX, REPOSITORY
from tests.support.tree import PYTHON, C, files_of, relative
from tools.count.circles import circles, includes

# package: (packages of this repository, other people's packages); the standard library always.
LAYERS: dict[str, tuple[set[str], set[str]]] = {
    "oci_specs": (set(), {"jsonschema", "referencing", "yaml"}),
    "placement": ({"oci_specs"}, set()),
    "runtime_hook": ({"oci_specs"}, set()),
    "sim": ({"oci_specs"}, set()),
    "native_sched": (
        {"oci_specs", "placement", "runtime_hook", "sim"},
        {"pynvml", "jsonschema", "prometheus_client"},
    ),
    "containerd_api": (set(), {"google", "grpc", "pyroute2"}),
    "install": ({"oci_specs"}, set()),
    "mgpu_cli": (
        {"containerd_api", "install", "oci_specs", "placement", "runtime_hook"},
        {"PIL", "click", "prometheus_client", "rich"},
    ),
    "cluster": (
        {"oci_specs", "placement", "runtime_hook"},
        {
            "aiohttp",
            "click",
            "cryptography",
            "google",
            "grpc",
            "httpx2",
            "lightkube",
            "numpy",
            "prometheus_client",
            "yaml",
        },
    ),
    "demo": ({"mgpu_cli", "oci_specs", "sim"}, {"rich"}),
}
# What a package may import of pyproject.toml's optional dependencies.
EXTRAS = {"cluster": ("cluster", "scheduler")}
# Where other people's packages may be imported only inside functions: every container's start imports these.
ON_EVERY_START = ("oci_specs", "runtime_hook")
HEAVY = {
    "asyncio",
    "click",
    "ctypes",
    "google",
    "grpc",
    "jsonschema",
    "logging",
    "multiprocessing",
    "prometheus_client",
    "pynvml",
    "rich",
    "yaml",
}


# room: those whose headers it may include. All C includes between rooms are here, and no other.
C_LAYERS: dict[str, set[str]] = {
    "base": set(),
    "native_sched/nvidia/rm": set(),
    "native_sched/core": set(),
    "native_sched/journal": set(),
    "native_sched/checkpoint": set(),
    "native_sched/holder": {"base"},
    "native_sched/process": {"base"},
    "native_sched/nvidia/account": {
        "base",
        "native_sched/core",
        "native_sched/journal",
        "native_sched/process",
        "native_sched/nvidia/rm",
    },
    "native_sched/nvidia/driver": {"native_sched/nvidia/account", "native_sched/nvidia/rm"},
    "native_sched/nvidia/driver/nvidia": {
        "base",
        "native_sched/nvidia/driver",
        "native_sched/nvidia/driver/nvidia/files",
        "native_sched/nvidia/driver/nvidia/guard",
        "native_sched/nvidia/driver/nvidia/host",
        "native_sched/process",
        "native_sched/nvidia/rm",
    },
    "native_sched/nvidia/driver/nvidia/files": {
        "base",
        "native_sched/nvidia/account",
        "native_sched/nvidia/driver/nvidia/host",
        "native_sched/process",
    },
    "native_sched/nvidia/driver/nvidia/guard": {"base", "native_sched/nvidia/driver/nvidia/host"},
    "native_sched/nvidia/driver/nvidia/host": {"native_sched/nvidia/account", "native_sched/nvidia/rm"},
    "native_sched/nvidia/driver/sim": {
        "base",
        "native_sched/nvidia/driver",
        "native_sched/process",
        "native_sched/nvidia/rm",
        "sim/abi",
    },
    "native_sched/nvidia/channels": {
        "base",
        "native_sched/core",
        "native_sched/nvidia/driver",
        "native_sched/nvidia/rm",
    },
    "native_sched/nvidia/boundary/call": {
        "base",
        "native_sched/nvidia/account",
        "native_sched/nvidia/driver",
        "native_sched/process",
        "native_sched/nvidia/rm",
    },
    "native_sched/nvidia/boundary/managed": {"native_sched/nvidia/boundary/call", "native_sched/process"},
    "native_sched/nvidia/boundary/objects": {
        "native_sched/nvidia/account",
        "native_sched/nvidia/boundary/call",
        "native_sched/nvidia/channels",
        "native_sched/nvidia/rm",
    },
    "native_sched/nvidia/boundary/continued": {
        "base",
        "native_sched/nvidia/boundary/objects",
        "native_sched/nvidia/channels",
    },
    "native_sched/nvidia/boundary/rm": {
        "base",
        "native_sched/nvidia/account",
        "native_sched/nvidia/boundary/call",
        "native_sched/nvidia/boundary/continued",
        "native_sched/nvidia/boundary/managed",
        "native_sched/nvidia/boundary/objects",
        "native_sched/nvidia/channels",
        "native_sched/process",
        "native_sched/nvidia/rm",
    },
    "native_sched/nvidia/boundary/older": {
        "native_sched/nvidia/boundary/call",
        "native_sched/nvidia/boundary/continued",
        "native_sched/nvidia/boundary/rm",
    },
    "native_sched/nvidia/boundary/uvm": {
        "native_sched/nvidia/account",
        "native_sched/nvidia/boundary/call",
        "native_sched/nvidia/boundary/managed",
        "native_sched/nvidia/boundary/objects",
    },
    "native_sched/nvidia/boundary/notify": {
        "native_sched/nvidia/boundary/call",
        "native_sched/nvidia/boundary/continued",
        "native_sched/nvidia/boundary/managed",
        "native_sched/nvidia/boundary/older",
        "native_sched/nvidia/boundary/rm",
        "native_sched/nvidia/boundary/uvm",
        "native_sched/process",
    },
    "native_sched/nvidia/boundary/restart": {
        "native_sched/nvidia/account",
        "native_sched/nvidia/boundary/call",
        "native_sched/nvidia/boundary/continued",
        "native_sched/nvidia/boundary/managed",
        "native_sched/nvidia/boundary/notify",
        "native_sched/nvidia/boundary/objects",
        "native_sched/nvidia/boundary/rm",
        "native_sched/nvidia/boundary/uvm",
        "native_sched/nvidia/channels",
    },
    "native_sched/loop": {
        "base",
        "native_sched/nvidia/boundary/call",
        "native_sched/nvidia/channels",
        "native_sched/core",
        "native_sched/process",
    },
    "native_sched/engine": {
        "base",
        "native_sched/nvidia/account",
        "native_sched/nvidia/boundary/call",
        "native_sched/nvidia/boundary/continued",
        "native_sched/nvidia/boundary/managed",
        "native_sched/nvidia/boundary/restart",
        "native_sched/nvidia/boundary/rm",
        "native_sched/core",
        "native_sched/nvidia/driver",
        "native_sched/loop",
        "native_sched/process",
    },
    "runtime_hook/common": {"base"},
    "runtime_hook/hook": {"base", "runtime_hook/common"},
    "runtime_hook/launcher": {"base", "runtime_hook/common"},
    "runtime_hook/listener": {"runtime_hook/common"},
    "shim": set(),
    "load": {"base"},
    "lab/card": {"base", "lab/card/gsp", "lab/card/state"},
    "lab/card/answers": {"lab/card/facts", "lab/card/state", "native_sched/nvidia/rm"},
    "lab/card/facts": set(),
    "lab/card/gsp": {
        "base",
        "lab/card/answers",
        "lab/card/facts",
        "lab/card/state",
        "native_sched/nvidia/rm",
    },
    "lab/card/memory": {"base", "sim/card/memory"},
    "lab/card/state": {"base", "lab/card/facts", "lab/card/memory", "lab/card/vfu", "sim/card/gpu"},
    "lab/card/vfu": set(),
    "lab/reached": set(),
    "lab/guest": set(),
    "sim/abi": {"native_sched/nvidia/rm"},
    "sim/card": {"base", "native_sched/nvidia/rm", "sim/abi", "sim/card/gpu", "sim/card/memory"},
    "sim/card/gpu": {"base", "native_sched/nvidia/rm", "sim/abi", "sim/card/memory"},
    "sim/card/memory": {"base"},
    "sim/libcuda": {"base", "native_sched/nvidia/rm", "sim/abi", "sim/rmclient"},
    "sim/libnvml": {"native_sched/nvidia/rm", "sim/rmclient"},
    "sim/rmclient": {"base", "native_sched/nvidia/rm", "sim/abi", "sim/card"},
}


class Import(NamedTuple):
    module: str
    line: int
    at_import_time: bool


def imports(source: str) -> Iterator[Import]:
    """Every import of a module; relative ones have the module ""."""
    tree = ast.parse(source)
    late = {id(inner) for outer in ast.walk(tree) if _runs_late(outer) for inner in ast.walk(outer)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = ["" if node.level else node.module or ""]
        else:
            continue
        for name in names:
            yield Import(name, node.lineno, id(node) not in late)


def _runs_late(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def sources(package: str) -> list[Path]:
    found = [path for path in files_of(PYTHON) if relative(path).startswith(f"{package}/")]
    assert found, f"no sources of {package}"
    return found


@pytest.mark.parametrize("package", sorted(LAYERS))
def test_imports_only_what_lies_below(package: str) -> None:
    own, foreign = LAYERS[package]
    wrong = []
    for path in sources(package):
        for found in imports(path.read_text()):
            top = found.module.partition(".")[0]
            known = top in sys.stdlib_module_names or top == package or top in own
            late = package not in ON_EVERY_START or not found.at_import_time
            if not known and not (top in foreign and late):
                wrong.append(f"{relative(path)}:{found.line} imports {found.module or 'a relative name'}")
    assert not wrong, "\n".join(wrong)


def test_no_test_module_is_imported() -> None:
    """What several share is in a helper: pytest alone imports tests."""
    found = [(path, each.module) for path in files_of(PYTHON) for each in imports(path.read_text())]
    assert not [one for one in found if one[1].rpartition(".")[2].startswith("test_")]


def distribution(requirement: str) -> str:
    """Its name, in the one way to write it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower()


@pytest.mark.parametrize("package", sorted(LAYERS))
def test_what_a_package_imports_is_declared(package: str) -> None:
    """Not only brought along by another dependency, which may do without it tomorrow."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = (project["optional-dependencies"][name] for name in EXTRAS.get(package, ()))
    declared = {distribution(each) for each in itertools.chain(project["dependencies"], *extras)}
    provided = packages_distributions()
    undeclared = [
        module
        for module in sorted(LAYERS[package][1])
        if declared.isdisjoint(map(distribution, provided[module]))
    ]
    assert not undeclared


def test_packages_form_no_cycle() -> None:
    pending = {package: set(own) for package, (own, _) in LAYERS.items()}
    while pending:
        free = {package for package, own in pending.items() if not own}
        assert free, f"these need one another: {', '.join(sorted(pending))}"
        pending = {package: own - free for package, own in pending.items() if package not in free}


@functools.cache
def c_includes() -> dict[str, set[str]]:
    names = [relative(path) for path in files_of(C) if not relative(path).startswith("tests/")]
    return includes(REPOSITORY, names, ["."])


def room(unit: str) -> str:
    return unit.rpartition("/")[0]


def test_c_rooms_include_what_the_table_says() -> None:
    found: dict[str, set[str]] = {}
    for unit, others in c_includes().items():
        found.setdefault(room(unit), set()).update(room(other) for other in others)
    assert {name: others - {name} for name, others in found.items()} == C_LAYERS


def test_no_circle_of_rooms_is_left() -> None:
    assert circles(C_LAYERS) == []


def test_interface_of_the_vendor_is_in_one_folder() -> None:
    """Another vendor's costs a folder, and what these two rooms say of this one."""
    vendor = "native_sched/nvidia/"
    above = {name for name, others in C_LAYERS.items() if any(other.startswith(vendor) for other in others)}
    arbiter = {name for name in above if name.startswith("native_sched/")}
    assert {name for name in arbiter if not name.startswith(vendor)} == {
        "native_sched/engine",
        "native_sched/loop",
    }


def test_no_circle_of_headers_is_left() -> None:
    assert circles(c_includes()) == []


def test_rule_is_seen_to_fail() -> None:
    source = "import os\ndef late():\n    import yaml\nfrom rich import print\n"
    assert list(imports(source)) == [
        Import("os", 1, True),
        Import("rich", 4, True),
        Import("yaml", 3, False),
    ]


def test_create_path_loads_nothing_heavy() -> None:
    script = (
        "import json, sys\n"
        f"sys.path.append({str(REPOSITORY)!r})\n"
        "import runtime_hook.create\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"
    )
    # In the way of mgpu-runtime: no environment, no site-packages.
    assert HEAVY.isdisjoint(json.loads(run(sys.executable, "-ISs", "-c", script)))


@pytest.mark.parametrize("package", sorted(set(LAYERS) - {"demo"}))
def test_installed_packages_are_those_of_the_tree(package: str) -> None:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = PREFIX / "lib" / version / "site-packages"
    if not (site / package).is_dir():
        pytest.skip(f"mgpu is not installed in {PREFIX}; make test installs it")
    here = {relative(path): path.read_bytes() for path in sources(package)}
    there = {path.relative_to(site).as_posix(): path.read_bytes() for path in (site / package).rglob("*.py")}
    assert sorted(there) == sorted(here)
    differing = [name for name, content in here.items() if there[name] != content]
    assert not differing, f"installed from older sources: {differing}"
