"""docs/node.md says of node.toml what NodeConfig and its schema say."""

import re
import textwrap
import tomllib
from dataclasses import asdict
from typing import NamedTuple

from native_sched.daemon.node import config as node_config
from native_sched.daemon.node.config import NodeConfig
from oci_specs import schemas
from tests.support.places import REPOSITORY

PAGE = (REPOSITORY / "docs" / "node.md").read_text()


class Row(NamedTuple):
    key: str
    default: str
    values: str


def rows() -> list[Row]:
    """The table of keys, its defaults as TOML."""
    table = PAGE.partition("| key |")[2].partition("\n\n")[0]
    return [
        Row(*found) for found in re.findall(r"^\| `(\w+)` \| `([^`]+)` \| ([^|]+) \|", table, re.MULTILINE)
    ]


def test_exactly_the_keys_and_their_defaults_in_order() -> None:
    said = [(row.key, tomllib.loads(f"default = {row.default}")["default"]) for row in rows()]
    defaults = asdict(NodeConfig())
    for name in ("supported_driver_capabilities", "cdi_dirs", "containerd"):
        defaults[name] = list(defaults[name])
    assert said == list(defaults.items())


def test_values_are_those_that_the_schema_allows() -> None:
    for row in rows():
        schema = schemas.load("node_config")["properties"][row.key]
        if "$ref" in schema:
            schema = schemas.load(schema["$ref"].partition(".")[0])
        if "enum" in schema:
            assert re.findall(r'"([^"]+)"', row.values) == schema["enum"], row.key
        if "minimum" in schema:
            assert row.values.startswith(f"{schema['minimum']} to {schema['maximum']} "), row.key


def test_strategies_are_all_told() -> None:
    table = PAGE.partition("| placement |")[2]
    told = re.findall(r"^\| `([a-z]+)` \|", table, re.MULTILINE)
    assert told == schemas.load("node_config")["properties"]["placement"]["enum"]


def test_example_is_a_config_that_says_something() -> None:
    blocks = re.findall(r"(?:^    .+\n)+", PAGE, re.MULTILINE)
    assert len(blocks) == 1
    assert node_config.from_table(tomllib.loads(textwrap.dedent(blocks[0]))) != NodeConfig()
