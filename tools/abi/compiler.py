"""What a C compiler says of expressions over NVIDIA's headers: values, and which of them mean nothing
there.
"""

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.abi.problem import Problem

_FLAGS = ("-std=gnu11", "-w", "-fmax-errors=0", "-x", "c")
# An expression that names what is missing may hide another one from the compiler, never more than a few deep.
_ROUNDS = 12
_MAIN = """
#include <stdio.h>
static const unsigned long long values[][2] = {
#include "expressions.inc"
};
int main(void)
{
    for (unsigned int i = 0; i < sizeof(values) / sizeof(*values); i++)
        printf("%llu %llu\\n", values[i][0], values[i][1]);
    return 0;
}
"""


def evaluate(
    headers: Sequence[str], folders: Sequence[Path], expressions: Sequence[str], tree: str
) -> list[int | None]:
    """Of each constant expression the value, or None where it does not compile. Problem: the headers do
    not."""
    searched = [f"-I{folder}" for folder in folders]
    includes = "".join(f"#include <{header}>\n" for header in headers)
    _compile([*_FLAGS, *searched, "-fsyntax-only", "-"], includes, tree)
    with tempfile.TemporaryDirectory(prefix="mgpu-abi-") as name:
        return _values(Path(name), searched, includes, expressions, tree)


def _values(
    folder: Path, searched: list[str], includes: str, expressions: Sequence[str], tree: str
) -> list[int | None]:
    (folder / "main.c").write_text(f"#include <stddef.h>\n{includes}{_MAIN}")
    program = folder / "program"
    command = ["cc", *_FLAGS, *searched, "-o", str(program), str(folder / "main.c")]
    missing: set[int] = set()
    for _ in range(_ROUNDS):
        (folder / "expressions.inc").write_text(
            "".join(
                "\n" if number in missing else f"{{{number}, (unsigned long long)({expression})}},\n"
                for number, expression in enumerate(expressions)
            )
        )
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            break
        found = {int(line) - 1 for line in re.findall(r"expressions\.inc:(\d+):\d+: error", done.stderr)}
        if not found - missing:
            raise Problem(f"{tree}: does not compile: {_first_error(done.stderr)}")
        missing |= found
    else:
        raise Problem(f"{tree}: does not compile: {_first_error(done.stderr)}")
    printed = subprocess.check_output([str(program)], text=True)
    values: list[int | None] = [None] * len(expressions)
    for line in printed.splitlines():
        index, value = line.split()
        values[int(index)] = int(value)
    return values


def _compile(arguments: list[str], source: str, tree: str) -> None:
    try:
        done = subprocess.run(["cc", *arguments], input=source, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise Problem("cc is not installed, and sizes are what a compiler says: install gcc") from None
    if done.returncode != 0:
        raise Problem(f"{tree}: does not compile: {_first_error(done.stderr)}")


def _first_error(printed: str) -> str:
    for line in printed.splitlines():
        if "error" in line:
            return line.strip()
    return printed.strip().splitlines()[0] if printed.strip() else "the compiler says nothing"
