"""Two cards: what programs are told of each reaching the other, and whether NCCL finds its way."""

from collections.abc import Container
from contextlib import ExitStack
from functools import partial

from tests.gpu.backend import Backend, python_with
from tests.gpu.first import CAP_MIB, does_on, steps
from tests.gpu.product import Product, Run
from tests.gpu.results import Result, Results
from tests.gpu.stage import CannotSayError
from tests.gpu.supervise import How, Supervised
from tests.support.rm_numbers import NV50_P2P

# Classes by which cards reach each other's memory, and groups of cards are written to at once.
PEER_CLASSES = {NV50_P2P: "NV50_P2P", 0xFD: "NV_MEMORY_MULTICAST_FABRIC", 0xF8: "NV_MEMORY_FABRIC"}
BOTH = "0,1"
# Ranks are processes of one program, or the program is one rank, with all of them at one address.
ALL_REDUCE = """
import json, os, sys, torch, torch.distributed as dist
def rank(number, card):
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29431", rank=number, world_size=2)
    torch.cuda.set_device(card)
    a = torch.full((1 << 20,), float(number + 1), device="cuda")
    dist.all_reduce(a)
    torch.cuda.synchronize()
    print(json.dumps({"rank": number, "sum": float(a[0])}), flush=True)
    os._exit(0)
if len(sys.argv) > 1:
    rank(int(sys.argv[1]), 0)
children = []
for number in (0, 1):
    pid = os.fork()
    if pid == 0:
        rank(number, number)
    children.append(pid)
sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children))
"""


def needed(driver: str, cards: int, module: str = "torch") -> str:
    """The machine's Python that has the module, where there are two cards."""
    if driver == "sim":
        raise CannotSayError("NCCL computes, and a simulated card does not")
    if cards < 2:
        raise CannotSayError("there is one card")
    if not (python := python_with(module)):
        raise CannotSayError(f"no Python here has {module}")
    return python


def summed(texts: list[str]) -> bool:
    """Both ranks have 1 + 2."""
    return sum('"sum": 3.0' in line for text in texts for line in text.splitlines()) == 2


def two_cards(product: Product, results: Results, out: Result) -> None:
    """Contexts on both, and what the driver API says of peers, and makes of it."""
    if product.card_count() < 2:
        raise CannotSayError("there is one card")
    words = ("init", "context", "context=0:1", "peer", "info", "destroy", "destroy")
    with product.container(steps(*words), memory_mib=2 * CAP_MIB, cards=BOTH) as box:
        found = does_on(box.end(), words, out, results)
    if found:
        peer = found[3]
        consistent = (peer["may"] == 1) == (peer["enabled"] == 0)
        out.verdict = "consistent" if consistent else f"peers: may {peer['may']}, enabled {peer['enabled']}"


def one_container(product: Product, results: Results, out: Result) -> None:
    """Two ranks, two cards, no setting of NCCL's but that it says what it does."""
    python = needed(product.driver, product.card_count())
    command = ["env", "NCCL_DEBUG=INFO", python, "-c", ALL_REDUCE]
    with product.container(command, memory_mib=4 * CAP_MIB, cards=BOTH) as box:
        judge([box.end(100)], out, results)


def two_containers(product: Product, results: Results, out: Result) -> None:
    """A rank in each, which meet by the machine's loopback."""
    python = needed(product.driver, product.card_count())
    with ExitStack() as stack:
        boxes = [
            stack.enter_context(
                product.container(
                    ["env", "NCCL_DEBUG=INFO", python, "-c", ALL_REDUCE, str(number)],
                    memory_mib=2 * CAP_MIB,
                    cards=str(number),
                    host_network=True,
                )
            )
            for number in (0, 1)
        ]
        judge([box.end(100) for box in boxes], out, results)


def judge(ran: list[Run], out: Result, results: Results) -> None:
    for one in ran:
        results.log(f"all_reduce (status {one.status}) said:\n{one.out}")
    out.figures["via"] = sorted(
        {
            line.partition(" via ")[2].strip()
            for one in ran
            for line in one.out.splitlines()
            if " via " in line
        }
    )
    out.verdict = (
        "all_reduce is right" if summed([one.out for one in ran]) else f"fails: {ran[0].out.strip()[-200:]}"
    )


def _is_class_of(refused: Container[int], kind: str, number: int) -> bool:
    return kind == "class" and number in refused


def natively(backend: Backend, results: Results, out: Result) -> None:
    """The same without mgpu: which of the peers' classes NCCL uses when it may, and how it ends when they are
    advertised and then refused. What the first needs is what mgpu has to serve.
    """
    python = needed(backend.name, backend.cards())
    for name, refused in (("allowed", {}), ("refused", PEER_CLASSES)):
        how = How(refuse=partial(_is_class_of, refused))
        with Supervised(backend, ["env", "NCCL_DEBUG=INFO", python, "-c", ALL_REDUCE], how) as program:
            text = program.output(80)
            results.log(f"all_reduce, peers {name}, said:\n{text}")
            out.figures[name] = {
                "right": summed([text]),
                "classes": {
                    what: program.census.seen[f"class {number:#x}"] for number, what in PEER_CLASSES.items()
                },
                "refused": dict(program.census.refused),
            }
    right = out.figures["allowed"]["right"]
    out.verdict = "all_reduce is right natively" if right else "all_reduce fails natively too"
