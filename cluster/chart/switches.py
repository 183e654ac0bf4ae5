"""Texts that differ by a switch of the chart's, as one template."""

from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher

# A line, or a conditional of several: a part of a template that stays whole.
Unit = str


def template(conditions: Mapping[str, str], text: Callable[[Mapping[str, bool]], str]) -> str:
    """One template of the texts of all settings of the switches.

    conditions: of each switch, the template expression that holds where it is on. text: by the switches'
    settings; each text is whole lines.
    """
    return "".join(_units(list(conditions.items()), {}, text))


def _units(
    switches: Sequence[tuple[str, str]],
    settings: dict[str, bool],
    text: Callable[[Mapping[str, bool]], str],
) -> list[Unit]:
    if not switches:
        return text(settings).splitlines(keepends=True)
    [(name, condition), *others] = switches
    off, on = (_units(others, {**settings, name: value}, text) for value in (False, True))
    units: list[Unit] = []
    for tag, first, last, first_on, last_on in SequenceMatcher(None, off, on, autojunk=False).get_opcodes():
        if tag == "equal":
            units += off[first:last]
        else:
            units.append(_conditional(condition, "".join(on[first_on:last_on]), "".join(off[first:last])))
    return units


def _conditional(condition: str, on: str, off: str) -> Unit:
    if not on:
        return f"{{{{- if not ({condition}) }}}}\n{off}{{{{- end }}}}\n"
    other = f"{{{{- else }}}}\n{off}" if off else ""
    return f"{{{{- if {condition} }}}}\n{on}{other}{{{{- end }}}}\n"
