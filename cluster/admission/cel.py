"""Texts of CEL, the language of admission policies: literals, and the few phrases that the policies
repeat.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from cluster.admission import asked
from oci_specs import forms, units
from oci_specs.refusal import SHOWN_MAX_CHARS

NO_MAP = "{}"
_DIGITS = len(str(units.MAX_NUMBER))
# As units.whole_number reads one.
_WHOLE = rf"0*[0-9]{{1,{_DIGITS}}}"


def text(value: str) -> str:
    """A string literal; JSON's escapes are CEL's."""
    return json.dumps(value, ensure_ascii=False)


def texts(values: Iterable[str]) -> str:
    return f"[{', '.join(text(value) for value in values)}]"


def table(values: Mapping[str, int] | Mapping[str, str]) -> str:
    """A map literal."""
    rows = (
        f"{text(name)}: {text(value) if isinstance(value, str) else value}" for name, value in values.items()
    )
    return f"{{{', '.join(rows)}}}"


def member(of: str, *path: str) -> str:
    """A map below an object, empty where a member on the way is not there."""
    return f"{of}.?{'.?'.join(path)}.orValue({NO_MAP})"


def limits(container: str) -> str:
    return member(container, "resources", "limits")


def quoted(value: str) -> str:
    """As oci_specs.refusal.quoted: a value as its user wrote it, on one line, and cut."""
    shown = f'{value}.substring(0, {SHOWN_MAX_CHARS}) + "…"'
    return f"strings.quote(string({value}).size() > {SHOWN_MAX_CHARS} ? {shown} : string({value}))"


def whole(quantity: str) -> str:
    return f"quantity(string({quantity})).asInteger()"


def joined(lists: Iterable[str]) -> str:
    """One list of several."""
    return "\n+ ".join(f"({each})" for each in lists)


def is_right(name: str, value: str) -> str:
    """Whether a value is what a form reads."""
    form = asked.form(name)
    if form.choices:
        return f"{value} in {texts(form.choices)}"
    if form.numbers is not None:
        return _is_number(value, form.numbers)
    if name == "count-list":
        return rf'{value}.matches("^[ ]*{_WHOLE}[ ]*(,[ ]*{_WHOLE}[ ]*)*$")'
    uuid = "(GPU|MIG)-[0-9A-Za-z][0-9A-Za-z/-]{0,94}"
    parts = f'{value}.split(",").map(part, part.trim())'
    return (
        f"({_is_number(value, forms.COUNT)} || "
        f'({value}.split(",").all(part, part.trim().matches("^{uuid}$")) && '
        f'{value}.split(",").all(part, {parts}.filter(other, other == part.trim()).size() == 1)))'
    )


def _is_number(value: str, span: forms.Numbers) -> str:
    in_steps = f"int({value}) >= {span.least} && int({value}) <= {span.most}"
    if span.step > 1:
        in_steps += f" && int({value}) % {span.step} == 0"
    if span.hundreds:
        in_steps = f"({in_steps} || int({value}) > 0 && int({value}) % 100 == 0)"
    return f'({value}.matches("^{_WHOLE}$") && {in_steps})'
