"""The structs and enums that Python declares of the engine library are those that a C compiler sees."""

import ctypes
import re
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import Any

from native_sched.daemon import engine_abi
from tests.support.commands import run
from tests.support.places import REPOSITORY

HEADERS = ("native_sched/nvidia/account/tenant.h", "native_sched/engine/engine.h")
TYPES = REPOSITORY / "native_sched" / "core" / "engine_types.h"
NUMBERS = {
    "MGPU_ENGINE_ABI": engine_abi.ABI,
    "MGPU_CARDS_MAX": engine_abi.MAX_CARDS,
    "MGPU_LATENCY_BUCKETS": engine_abi.LATENCY_BUCKETS,
}


def declared(base: type[Any]) -> Iterator[tuple[str, type[Any]]]:
    """Name in C, and class, of what mgpud declares. The docstring has the name."""
    for found in vars(engine_abi).values():
        if isinstance(found, type) and issubclass(found, base) and found.__module__ == engine_abi.__name__:
            named = re.search(r"\b(?:struct|enum) (\w+)", found.__doc__ or "")
            assert named, f"{found.__name__} does not say what it is in C"
            yield named[1], found


def struct_lines(name: str, mirror: type[ctypes.Structure]) -> Iterator[str]:
    yield f'_Static_assert(sizeof(struct {name}) == {ctypes.sizeof(mirror)}, "{name}");'
    for field in mirror._fields_:
        at = getattr(mirror, field[0])
        member = f"((struct {name} *)0)->{field[0]}"
        yield f'_Static_assert(offsetof(struct {name}, {field[0]}) == {at.offset}, "{name}.{field[0]}");'
        yield f'_Static_assert(sizeof({member}) == {at.size}, "{name}.{field[0]}");'


def constants(name: str, text: str) -> list[str]:
    body = re.search(rf"\benum {name} {{(.*?)}};", text, re.DOTALL)
    assert body, f"no enum {name}"
    plain = re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL)
    return [one.partition("=")[0].strip() for one in plain.split(",") if one.strip()]


def enum_lines(name: str, mirror: type[IntEnum], text: str) -> Iterator[str]:
    there = [one for one in constants(name, text) if not one.endswith("_KINDS")]
    assert len(there) == len(mirror), f"enum {name} has {there}"
    for constant, member in zip(there, mirror, strict=True):
        assert constant.endswith(f"_{member.name}"), f"{constant} is {member.name} in Python"
        yield f'_Static_assert({constant} == {member.value}, "{constant}");'


def test_python_and_c_agree_on_every_member(tmp_path: Path) -> None:
    text = TYPES.read_text() + "".join((REPOSITORY / header).read_text() for header in HEADERS)
    structs, enums = list(declared(ctypes.Structure)), list(declared(IntEnum))
    assert (len(structs), len(enums)) >= (11, 8)
    lines = ["#include <stddef.h>", *(f'#include "{header}"' for header in HEADERS)]
    lines += [line for name, mirror in structs for line in struct_lines(name, mirror)]
    lines += [line for name, mirror in enums for line in enum_lines(name, mirror, text)]
    lines += [f'_Static_assert({name} == {value}, "{name}");' for name, value in NUMBERS.items()]
    source = tmp_path / "layout.c"
    source.write_text("\n".join([*lines, ""]))
    run("cc", "-std=c11", "-D_GNU_SOURCE", f"-I{REPOSITORY}", "-fsyntax-only", source)


def test_every_struct_that_the_library_shows_is_declared() -> None:
    shown = set(re.findall(r"^struct (mgpu_\w+) {", TYPES.read_text(), re.MULTILINE))
    assert shown == {name for name, _ in declared(ctypes.Structure)}


def python_type(declaration: str) -> object:
    """What ctypes calls the type of a parameter or result, without its name."""
    word = re.sub(r"\b(const|struct)\b", "", declaration).split()[0]
    pointers = declaration.count("*")
    if word == "mgpu_engine":
        return ctypes.c_void_p if pointers == 1 else ctypes.POINTER(ctypes.c_void_p)
    if word == "char":
        return ctypes.c_char_p
    mirrors = dict(declared(ctypes.Structure))
    plain = mirrors[word] if word in mirrors else getattr(ctypes, f"c_{word.removesuffix('_t')}", None)
    return ctypes.POINTER(plain) if pointers and plain else plain


def test_python_calls_every_function_as_it_is_declared() -> None:
    text = re.sub(r"/\*.*?\*/", "", (REPOSITORY / HEADERS[1]).read_text(), flags=re.DOTALL)
    there = {}
    for result, name, parameters in re.findall(r"MGPU_API (.+?)(mgpu_\w+)\((.*?)\);", text, re.DOTALL):
        given = [] if parameters == "void" else [python_type(one) for one in parameters.split(",")]
        there[name] = (given, python_type(result))
    called = engine_abi.SIGNATURES
    assert len(called) > 30
    assert called == {name: there[name] for name in called}
