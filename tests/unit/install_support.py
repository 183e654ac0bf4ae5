"""Configurations as people write them, and installing into files of a test's own."""

import json
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from install import apply, planning
from install.change import Plan
from install.engine import Engine, Intent
from install.parts import Parts

PARTS = Parts(
    prefix="/opt/mgpu",
    runtime="/opt/mgpu/libexec/mgpu/mgpu-runtime",
    shim="/opt/mgpu/libexec/mgpu/containerd-shim-mgpu-v2",
    holder="/opt/mgpu/libexec/mgpu/mgpu-holder",
    mgpud="/opt/mgpu/bin/mgpud",
    root="/run/mgpu",
    runtime_conf='runtime = "/usr/bin/runc"\n',
)


# Files are synced to the disk: how long that takes is not ours, and some dozen are enough.
ON_DISK = settings(deadline=None, max_examples=30)


def intent(folder: Path, config: Path, **chosen: Any) -> Intent:
    return Intent(config=config, bin_dir=folder / "bin", **chosen)


def install(engine: Engine, intended: Intent, parts: Parts = PARTS) -> Plan:
    plan = planning.to_install(engine.targets(parts, intended))
    apply.apply(plan)
    return plan


def uninstall(engine: Engine, intended: Intent, parts: Parts = PARTS) -> Plan:
    plan = planning.to_uninstall(engine.targets(parts, intended))
    apply.apply(plan)
    return plan


def tree(folder: Path) -> dict[str, bytes | str]:
    """Every file and link below folder with what is in it."""
    return {
        path.relative_to(folder).as_posix(): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


_names = st.text("abcdefgh-_09", min_size=1, max_size=6)
# Few letters, but those that TOML, JSON and the marks of a block are made of.
_texts = st.text("ab /\"\\#[]{}=,:'é😀", max_size=8)
_scalars = st.one_of(st.integers(-(2**40), 2**40), st.booleans(), _texts)
_blank_lines = st.sampled_from(["", "\n", "# a remark: [not a table] = 1\n", "  # another\n\n"])
_indents = st.sampled_from(["", "  ", "    "])


def _toml_scalar(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@st.composite
def toml_texts(draw: st.DrawFn, *, prefix: str = "", version: int | None = None) -> str:
    """A TOML document with remarks, odd spacing and tables under `prefix` and elsewhere."""
    lines = [f"version = {version}\n"] if version is not None else []
    for name in draw(st.lists(_names, unique=True, max_size=3)):
        lines.append(
            f"top-{name} = {_toml_scalar(draw(_scalars))}{draw(st.sampled_from(['', '  # why']))}\n"
        )
        lines.append(draw(_blank_lines))
    for name in draw(st.lists(_names, unique=True, max_size=4)):
        head = draw(st.sampled_from([f"[x-{name}]", *([f"{prefix}.x-{name}]"] if prefix else [])]))
        indent = draw(_indents)
        lines.append(f"{indent}{head}\n")
        for key in draw(st.lists(_names, unique=True, max_size=3)):
            values = draw(st.one_of(_scalars.map(_toml_scalar), st.lists(_scalars, max_size=3).map(_list)))
            lines.append(f"{indent}  {key}={values}\n")
            lines.append(draw(_blank_lines))
    text = "".join(lines)
    return text if draw(st.booleans()) else text.removesuffix("\n")


def _list(values: list[Any]) -> str:
    return "[" + ", ".join(map(_toml_scalar, values)) + "]"


_json_values = st.recursive(
    st.one_of(st.none(), _scalars),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_texts, inner, max_size=3)),
    max_leaves=6,
)


@st.composite
def json_texts(draw: st.DrawFn) -> str:
    """A JSON object in one of the layouts that people and programs write."""
    document = draw(st.dictionaries(_texts, _json_values, max_size=4))
    document.pop("default-runtime", None)
    document.pop("runtimes", None)
    if draw(st.booleans()):
        others = st.dictionaries(
            st.sampled_from(["a", "b", "kata"]), st.fixed_dictionaries({"path": _texts})
        )
        document["runtimes"] = draw(others)
    items = list(document.items())
    indent = draw(st.sampled_from([None, 0, 1, 2, 4, "\t"]))
    separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : ")]))
    text = json.dumps(
        dict(draw(st.permutations(items))),
        indent=indent,
        separators=separators,
        ensure_ascii=draw(st.booleans()),
    )
    return draw(st.sampled_from(["", "\n", " "])) + text + draw(st.sampled_from(["", "\n", "\n\n"]))
