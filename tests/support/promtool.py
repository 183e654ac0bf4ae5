"""promtool's judgement of metrics and of PromQL."""

import json
from collections.abc import Mapping
from pathlib import Path

from tests.support.commands import attempt


def complaints(text: str) -> str:
    """What `promtool check metrics` has against an exposition, its naming included; empty: nothing."""
    done = attempt("promtool", "check", "metrics", stdin=text)
    return done.out + done.err if done.status or done.err else ""


def bad_expressions(expressions: Mapping[str, str], folder: Path) -> str:
    """What is wrong with PromQL expressions, given by name; empty: nothing."""
    rules = [{"record": f"check:{name}", "expr": text} for name, text in expressions.items()]
    path = folder / "rules.yml"
    # JSON is YAML.
    path.write_text(json.dumps({"groups": [{"name": "check", "rules": rules}]}))
    done = attempt("promtool", "check", "rules", path)
    return done.out + done.err if done.status else ""
