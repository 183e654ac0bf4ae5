"""A simulated card, once as it is installed and once built with the address and undefined-behaviour
sanitizers.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oci_specs import paths
from sim.cards import CardProcess, ask, running
from tests.sim.card_protocol import Client, Connection
from tests.sim.card_space import Space
from tests.support import commands
from tests.support.waiting import until

REPOSITORY = Path(__file__).resolve().parents[2]
TABLE = REPOSITORY / "native_sched/nvidia/rm/table.c"
C_FLAGS = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-pthread")

# The card of `card` that has NVIDIA's rings and nvidia-uvm in tests.
A10 = 2

NewClient = Callable[..., Client]
Run = Callable[..., str]


@pytest.fixture(scope="session")
def sanitized_simcard(tmp_path_factory: pytest.TempPathFactory) -> str:
    program = tmp_path_factory.mktemp("sanitized") / "mgpu-simcard"
    sanitizers = ("-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    sources = [*sorted((REPOSITORY / "sim/card").rglob("*.c")), TABLE]
    commands.run("cc", *C_FLAGS, *sanitizers, *sources, "-o", program)
    return os.fspath(program)


@pytest.fixture(scope="session")
def supervisor(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program that forwards a command's RM ioctls to a card: see supervisor.c."""
    program = tmp_path_factory.mktemp("supervisor") / "supervisor"
    source = Path(__file__).with_name("supervisor.c")
    commands.run("cc", *C_FLAGS, "-O2", source, TABLE, "-o", program)
    return os.fspath(program)


@pytest.fixture(scope="module", params=["installed", "sanitized"])
def card(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CardProcess]:
    """Two V100-16 and an A10, whose calls take no time; at the end they hold nothing and have not crashed.

    A module's CARD_OPTIONS are theirs.
    """
    if request.param == "sanitized":
        program = request.getfixturevalue("sanitized_simcard")
    else:
        program = paths.libexec("mgpu-simcard")
    directory = tmp_path_factory.mktemp("card")
    options = getattr(request.module, "CARD_OPTIONS", ())
    with running(directory, "v100-16:2,a10", rm_call_us=0, program=program, options=options) as process:
        yield process
    assert process.process.returncode == 0


@pytest.fixture
def connection(card: CardProcess) -> Iterator[Connection]:
    with Connection(card.card_socket) as made:
        yield made


@pytest.fixture
def new_client(card: CardProcess, connection: Connection) -> Iterator[NewClient]:
    """Makes clients whose files are closed at the end of the test, which ends when the card has seen that."""
    clients: list[Client] = []

    def make(card_index: int = 0, tgid: int = 1) -> Client:
        clients.append(Client(connection, card_index, tgid=tgid))
        return clients[-1]

    yield make
    for client in clients:
        client.close()
    theirs = {client.file.id for client in clients}
    until(
        lambda: theirs.isdisjoint(open_["file"] for open_ in ask(card.admin_socket, "files")),
        "the card has seen the files close",
        poll_s=0.002,
    )


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CardProcess]:
    with running(tmp_path_factory.mktemp("card"), "v100-16:2,a10", rm_call_us=0) as card:
        yield card


@pytest.fixture
def supervised(simulated: CardProcess, supervisor: str) -> Iterator[Callable[[list[str]], list[str]]]:
    """Turns a command into one whose ioctls the card answers. After the test the card must soon be empty."""
    yield lambda command: [supervisor, os.fspath(simulated.card_socket), "3", *command]
    until(
        lambda: not any(card.used_bytes for card in simulated.account().cards),
        "the cards are empty",
        poll_s=0.005,
    )


@pytest.fixture
def run(supervised: Callable[[list[str]], list[str]]) -> Run:
    def call(command: list[str], **environment: str) -> str:
        return commands.run(*supervised(command), env=library_environment(**environment))

    return call


def library_environment(**more: str) -> dict[str, str]:
    """Where the simulated libraries and the programs' helpers are found; more: variables besides."""
    libraries = os.path.dirname(paths.lib("sim/libcuda.so.1"))
    return {**os.environ, "LD_LIBRARY_PATH": libraries, "PYTHONPATH": str(REPOSITORY), **more}


@pytest.fixture
def client(new_client: NewClient) -> Client:
    """Of the A10."""
    return new_client(A10)


@pytest.fixture
def vaspace(client: Client) -> Iterator[Space]:
    made = Space(client)
    yield made
    made.uvm.close()
