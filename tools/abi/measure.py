"""A header tree's facts."""

from dataclasses import dataclass, field
from pathlib import Path

from tools.abi import tables
from tools.abi.compiler import evaluate
from tools.abi.release import NONE, WHOLE, Key, Release
from tools.abi.tree import HeaderTree, Method


@dataclass
class _Questions:
    """Expressions for the compiler, each asked once."""

    asked: dict[str, int] = field(default_factory=dict)
    answers: list[int | None] = field(default_factory=list)

    def ask(self, expression: str) -> None:
        self.asked.setdefault(expression, len(self.asked))

    def answer(self, expression: str) -> int | None:
        return self.answers[self.asked[expression]]

    def number(self, name: str) -> str | None:
        value = self.answer(name)
        return None if value is None else f"{value & 0xFFFFFFFF:#x}"

    def sized(self, struct: str | None) -> tuple[str, str]:
        """The struct and its bytes, where the tree has it."""
        value = None if struct is None else self.answer(size(struct))
        return (NONE, NONE) if struct is None or value is None else (struct, str(value))


@dataclass(frozen=True)
class _Names:
    """What a tree's text names: with a class, a control and a command of nvidia-uvm its struct, with an
    escape all.
    """

    statuses: list[str]
    classes: dict[str, str | None]
    controls: dict[str, str | None]
    uvm: dict[str, str]
    escapes: dict[str, list[str]]
    methods: dict[int, Method]

    def structs(self) -> set[str]:
        found = {struct for structs in self.escapes.values() for struct in structs} | set(self.uvm.values())
        found |= {params for params in (*self.classes.values(), *self.controls.values()) if params}
        return found | {method.params for method in self.methods.values() if method.params}


def size(struct: str) -> str:
    return f"sizeof({struct})"


def field_size(struct: str, name: str) -> str:
    return f"sizeof((({struct} *)0)->{name})"


def offset(struct: str, name: str) -> str:
    return f"__builtin_offsetof({struct}, {name})"


def measure(tree: HeaderTree, source: str, folder: Path = tables.FACTS) -> Release:
    """Problem: the tree does not compile, or lacks what the facts are made of."""
    names = _Names(
        tree.statuses(),
        tree.classes(),
        tree.controls(),
        {name: f"{name}_PARAMS" for name in tree.uvm_commands()},
        {name: tables.escape_structs(folder).get(name, []) for name in tree.escapes()},
        tree.methods(),
    )
    constants, fields = tables.constants(folder), _fields(folder, names)
    questions = _Questions()
    for name in (*names.statuses, *names.classes, *names.controls, *names.uvm, *names.escapes):
        questions.ask(name)
    for constant in constants:
        questions.ask(constant.expression)
    for struct in sorted(names.structs() | {struct for struct, _ in fields}):
        questions.ask(size(struct))
    for struct, name in fields:
        if name != WHOLE:
            questions.ask(offset(struct, name))
            questions.ask(field_size(struct, name))
    questions.answers = evaluate(tree.headers(), tree.folders, list(questions.asked), str(tree.root))

    release = Release(tree.version, source)
    for name in names.statuses:
        _put(release.facts["status"], (name,), questions.number(name))
    for name, params in names.classes.items():
        _put(release.facts["class"], (name,), questions.number(name), *questions.sized(params))
    for name, struct in names.uvm.items():
        _put(release.facts["uvm"], (name,), questions.number(name), *questions.sized(struct))
    for constant in constants:
        _put(release.facts["constant"], (constant.expression,), questions.number(constant.expression))
    _put_controls(release, names, questions)
    _put_escapes(release, names, questions)
    _put_fields(release, fields, questions)
    return release


def _put_controls(release: Release, names: _Names, questions: _Questions) -> None:
    """Those that RM keeps for itself are left out. A control that no header names is called by its
    function."""
    facts, privileges = release.facts["control"], release.facts["privilege"]
    named = {}
    for name, params in names.controls.items():
        number = questions.answer(name)
        if number is not None:
            named[number] = name
        method = names.methods.get(-1 if number is None else number)
        if "_INTERNAL_" in name:
            continue
        known = questions.sized(params)
        if method is not None:
            privileges[(name,)] = (method.privilege, f"{method.access_right:#x}")
            theirs = questions.sized(method.params)
            known = known if theirs[1] == known[1] else theirs
        _put(facts, (name,), questions.number(name), *known)
    for number, method in names.methods.items():
        if number not in named and method.privilege != "INTERNAL":
            key = (f"({method.function})",)
            facts[key] = (f"{number:#x}", *questions.sized(method.params))
            privileges[key] = (method.privilege, f"{method.access_right:#x}")


def _put_escapes(release: Release, names: _Names, questions: _Questions) -> None:
    for name, structs in names.escapes.items():
        known = [pair for pair in map(questions.sized, structs) if pair[0] != NONE]
        for struct, length in known or [(NONE, NONE)]:
            _put(release.facts["escape"], (name, struct), questions.number(name), length)


def _put_fields(release: Release, fields: list[tuple[str, str]], questions: _Questions) -> None:
    for struct, name in fields:
        if name == WHOLE:
            length, place = questions.answer(size(struct)), NONE
        else:
            at, length = questions.answer(offset(struct, name)), questions.answer(field_size(struct, name))
            place = f"{at:#x}" if at is not None else NONE
        if length is not None:
            release.facts["field"][(struct, name)] = (place, str(length))


def _put(facts: dict[Key, tuple[str, ...]], key: Key, first: str | None, *rest: str) -> None:
    """What the tree does not have is no fact."""
    if first is not None:
        facts[key] = (first, *rest)


def _fields(folder: Path, names: _Names) -> list[tuple[str, str]]:
    """Decoded fields, and wherever an escape or a command of nvidia-uvm has its status."""
    outer = {struct for found in names.escapes.values() for struct in found if "[" not in struct}
    found = [(struct, name) for struct in outer for name in tables.STATUSES[:3]]
    found += [(struct, tables.STATUSES[3]) for struct in names.uvm.values()]
    return sorted({*tables.wanted_fields(folder), *found})
