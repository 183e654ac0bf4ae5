"""Judges a commit's subject, as a hook of git: `python -m tools.subject FILE` exits with 1 and one line."""

import re
import sys
from pathlib import Path

MAX_CHARS = 100
_SUBJECT = re.compile(r"(?P<area>[a-z][\w./-]*(?:, [a-z][\w./-]*)*): (?P<verb>[A-Za-z]\w*) .+")
# git's own, which a rebase squashes.
_OF_GIT = ("fixup! ", "squash! ", "amend! ", "Revert ")
_ARTICLE = re.compile(r"an?|the|each|every|all|no|what|which|who|some|its|their|this|that|these|those")
# Imperatives that end as other forms of a verb do.
_VERB = re.compile(r"bring|embed|feed|focus|need|process|ring|seed|shed|speed|string")
_OTHER_FORM = re.compile(r".*([^s]s|ed|ing)")


def amiss(message: str) -> str:
    """Why the subject is none; empty where it is one."""
    subject = message.partition("\n")[0]
    if subject.startswith(_OF_GIT):
        return ""
    if len(subject) > MAX_CHARS:
        return f"it has {len(subject)} characters, at most {MAX_CHARS}"
    found = _SUBJECT.fullmatch(subject)
    if found is None:
        return "it is not `area: imperative`"
    verb = found["verb"].lower()
    if _ARTICLE.fullmatch(verb) or (_OTHER_FORM.fullmatch(verb) and not _VERB.fullmatch(verb)):
        return f'"{verb}" is no imperative: say what the commit does, as "refuse" or "mend"'
    return ""


def main(path: str) -> int:
    why = amiss(Path(path).read_text())
    if why:
        print(f"commit subject: {why}")
    return int(bool(why))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
