from dataclasses import asdict
from pathlib import Path

import pytest

from native_sched.daemon.node import config as node_config
from native_sched.daemon.node.config import NodeConfig
from oci_specs import schemas
from oci_specs.refusal import Refusal
from oci_specs.vocabulary import POLICIES


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(text)
    return path


def test_missing_or_empty_file_means_defaults(tmp_path: Path) -> None:
    assert node_config.load(tmp_path / "node.toml") == NodeConfig()
    assert node_config.load(written(tmp_path, "")) == NodeConfig()


def test_every_key(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        policy = "guaranteed-burst-share"
        placement = "binpack"
        allow_privileged = true
        aliyun_unit = "mib"
        visible_devices_all = "whole-cards"
        lease_seconds = 5
        max_containers_per_card = 4
        cdi_dirs = ["/srv/cdi"]
        schedule = false
        hold_ms = 0
        poll_fast_us = 50
        poll_slow_us = 100000
        """,
    )
    assert node_config.load(path) == NodeConfig(
        policy="guaranteed-burst-share",
        placement="binpack",
        allow_privileged=True,
        aliyun_unit="mib",
        visible_devices_all="whole-cards",
        lease_seconds=5,
        max_containers_per_card=4,
        cdi_dirs=("/srv/cdi",),
        schedule=False,
        hold_ms=0,
        poll_fast_us=50,
        poll_slow_us=100000,
    )


def test_schema_has_the_same_keys_and_defaults() -> None:
    properties = schemas.load("node_config")["properties"]
    defaults = asdict(NodeConfig())
    for name in ("supported_driver_capabilities", "cdi_dirs", "containerd"):
        defaults[name] = list(defaults[name])
    assert {name: schema["default"] for name, schema in properties.items()} == defaults


_KEYS = ", ".join(asdict(NodeConfig()))
_POLICIES = f"allowed: {', '.join(POLICIES)}"
_HOLD = "allowed: a whole number from 0 to 60000"
_DIRS = "allowed: a list of absolute paths"
# (text of the file, what the line says after the file's name)
BAD = [
    ("policies = 1", f'"policies" is not a key; allowed: {_KEYS}'),
    ('hold_ms = -1\n"a\\nb" = 1', f'"a\\nb" is not a key; allowed: {_KEYS}'),
    ("[cards]\npolicy = 1", f'"cards" is not a key; allowed: {_KEYS}'),
    ('policy = "fs"', f'policy is "fs"; {_POLICIES}'),
    ("policy = 1", f"policy is 1; {_POLICIES}"),
    ("[policy]", f"policy is a table; {_POLICIES}"),
    ('placement = "random"', 'placement is "random"; allowed: default, binpack, spread, separate'),
    ("allow_privileged = 1", "allow_privileged is 1; allowed: true or false"),
    ('allow_privileged = "true"', 'allow_privileged is "true"; allowed: true or false'),
    ("lease_seconds = 0", "lease_seconds is 0; allowed: a whole number from 1 to 3600"),
    ("max_containers_per_card = 17", "max_containers_per_card is 17; allowed: a whole number from 1 to 16"),
    ("hold_ms = -1", f"hold_ms is -1; {_HOLD}"),
    ("hold_ms = 0.5", f"hold_ms is 0.5; {_HOLD}"),
    ("hold_ms = true", f"hold_ms is true; {_HOLD}"),
    ("hold_ms = 2024-02-29", f"hold_ms is 2024-02-29; {_HOLD}"),
    ("hold_ms = [1]", f"hold_ms is a list; {_HOLD}"),
    ("poll_fast_us = 49", "poll_fast_us is 49; allowed: a whole number from 50 to 10000"),
    ("poll_slow_us = 100001", "poll_slow_us is 100001; allowed: a whole number from 200 to 100000"),
    ("evict_wait_ms = -1", "evict_wait_ms is -1; allowed: a whole number from 1 to 600000"),
    ("evict_drain_ms = 0", "evict_drain_ms is 0; allowed: a whole number from 1 to 60000"),
    ("restore_hold_ms = -1", "restore_hold_ms is -1; allowed: a whole number from 0 to 3600000"),
    ('unevictable = "kill"', 'unevictable is "kill"; allowed: keep, end'),
    ("offline_overcommit = 2", "offline_overcommit is 2; allowed: true or false"),
    ('cdi_dirs = "/etc/cdi"', f'cdi_dirs is "/etc/cdi"; {_DIRS}'),
    ('cdi_dirs = ["/etc/cdi", "cdi"]', f'cdi_dirs has "cdi"; {_DIRS}'),
    (
        'hold_ms = 1\n\npolicy "fs"',
        "line 3 is not TOML: expected '=' after a key in a key/value pair; correct that line",
    ),
    ("hold_ms = 1\nhold_ms = 2\n", 'line 2 sets "hold_ms" once more; leave one of the two'),
    ("cdi_dirs = [\n'/a',\n\n\n", "line 2 is not TOML: invalid value; correct that line"),
    (f"hold_ms = {'9' * 5000}", "a number in it is too long; write a shorter one"),
]


@pytest.mark.parametrize(("text", "fault"), BAD, ids=[text[:30] for text, _ in BAD])
def test_bad_file_is_refused_in_this_line(tmp_path: Path, text: str, fault: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(Refusal) as raised:
        node_config.load(path)
    assert raised.value.code == "bad-node-config"
    assert raised.value.line() == f"mgpu: {path}: {fault}"


def test_file_that_is_not_utf8_or_a_directory_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_bytes(b'\npolicy = "\xff"')
    with pytest.raises(Refusal, match=r"node\.toml: line 2 is not UTF-8"):
        node_config.load(path)
    with pytest.raises(Refusal, match="Is a directory"):
        node_config.load(tmp_path)


def test_every_key_has_words_for_allowed_values(tmp_path: Path) -> None:
    """A new kind of key in the schema needs words of its own."""
    for name in asdict(NodeConfig()):
        with pytest.raises(Refusal, match=f"{name} is 0.5; allowed: "):
            node_config.load(written(tmp_path, f"{name} = 0.5"))
