"""`kubectl mgpu` asks the agents of our own manifest, each in the container and by the programs
that it has.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.commands import Done, attempt
from tests.support.places import REPOSITORY

PLUGIN = REPOSITORY / "cluster" / "kubectl-mgpu"
AGENT = yaml.safe_load((REPOSITORY / "cluster" / "manifests" / "agent.yaml").read_text())
# Answers as kubectl does for the pods in pods.json; what it was asked to execute goes to calls.
KUBECTL = """#!{python}
import json, pathlib, sys
here = pathlib.Path(__file__).parent
argv = sys.argv[1:]
asked = {{argv[i]: argv[i + 1] for i in range(len(argv) - 1) if argv[i].startswith("--")}}
pods = [pod for pod in json.loads((here / "pods.json").read_text())
        if pod["metadata"]["namespace"] == asked["--namespace"]]
if argv[0] == "get":
    name, _, value = asked["--selector"].partition("=")
    for pod in pods:
        if pod["metadata"]["labels"].get(name) == value:
            print(pod["spec"]["nodeName"], pod["metadata"]["name"])
else:
    command = argv[argv.index("--") + 1:]
    [pod] = [pod for pod in pods if pod["metadata"]["name"] in argv]
    assert asked["--container"] in [one["name"] for one in pod["spec"]["containers"]]
    print(json.dumps(command))
    sys.exit("broken" in pod["metadata"]["name"])
"""


def pod(name: str, node: str) -> dict[str, Any]:
    template = AGENT["spec"]["template"]
    metadata = {**template["metadata"], "name": name, "namespace": AGENT["metadata"]["namespace"]}
    return {"metadata": metadata, "spec": {**template["spec"], "nodeName": node}}


def ask(tmp_path: Path, pods: list[dict[str, Any]], *words: str) -> Done:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL.format(python=sys.executable))
    kubectl.chmod(0o755)
    (tmp_path / "pods.json").write_text(json.dumps(pods))
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    return attempt(PLUGIN, *words, env=env)


def other(name: str) -> dict[str, Any]:
    made = pod(name, "a")
    made["metadata"]["labels"] = {"app.kubernetes.io/component": "node"}
    return made


@pytest.mark.parametrize(
    ("words", "asked"), [((), ["top", "--once"]), (("ps", "-o", "json"), ["ps", "-o", "json"])]
)
def test_each_agent_is_asked_once_in_the_order_of_nodes(
    tmp_path: Path, words: tuple[str, ...], asked: list[str]
) -> None:
    done = ask(tmp_path, [pod("agent-2", "b"), pod("agent-1", "a"), other("node-1")], *words)
    first, said, second, again = done.out.splitlines()
    assert (first, second, done.status) == ("node a", "node b", 0)
    program = AGENT["spec"]["template"]["spec"]["containers"][0]["command"][0]
    [drain] = [AGENT["spec"]["template"]["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]]
    assert json.loads(said) == json.loads(again) == [program, "run", "--", drain[3], *asked]


def test_node_that_does_not_answer_is_a_failure_and_hides_no_other(tmp_path: Path) -> None:
    done = ask(tmp_path, [pod("broken", "a"), pod("agent-1", "b")])
    assert done.status == 1
    assert "node b" in done.out
