"""`mgpu drain` and `mgpu undrain`: GPUs without containers, which mgpud lets go of."""

import time
from collections.abc import Sequence
from typing import Any

import click

from mgpu_cli import client, options, render
from mgpu_cli.state import StateDir
from oci_specs.refusal import Refusal, quoted
from runtime_hook.bound import is_bound

POLL_S = 1.0
SHOWN = 5
TAKEN_BACK_S = 30.0
Card = dict[str, Any]
_EVERY = click.option("--all", "every", is_flag=True, help="All GPUs of the node.")
_GPUS = click.argument("gpus", nargs=-1, metavar="[GPU]...")


@click.command(short_help="Wait until no container holds GPUs, and let go of them.")
@_GPUS
@_EVERY
@options.root
def drain(state: StateDir, gpus: tuple[str, ...], every: bool) -> None:
    """Have GPUs take no new container, wait until none is left there, and have mgpud let go of them.

    Then they can be reset or, with --all, the driver be unloaded, until mgpu undrain takes them back. GPU is
    an index or the beginning of a UUID. It holds also where this command is ended, and when mgpud restarts.

    Without GPU and --all, only wait until no container of the node holds one, and say which are waited for.
    Nothing keeps further containers from starting then.
    """
    if not gpus and not every:
        wait_until_free(state, drain=True)
        return
    chosen = _chosen(state, gpus)
    client.ask(state.control, "drain", cards=chosen, drained=True)
    reported: list[str] = []
    while not all(_is_drained(card) for card in _listed(state, chosen)):
        holders = _holders(state, chosen)
        if holders and (names := [_name(each) for each in holders]) != reported:
            click.echo(f"waiting: {_counted(holders)} {_gpu(chosen)}: {_listed_names(holders)}")
            reported = names
        time.sleep(POLL_S)
    click.echo(f"{_gpu(chosen)}: drained; mgpud has nothing of it open")


@click.command(short_help="Take drained GPUs back in.")
@_GPUS
@_EVERY
@options.root
def undrain(state: StateDir, gpus: tuple[str, ...], every: bool) -> None:
    """Have drained GPUs take containers again. Where all were drained, mgpud is restarted for it."""
    if not gpus and not every:
        raise click.UsageError("name GPUs, or say --all")
    chosen = _chosen(state, gpus)
    client.ask(state.control, "drain", cards=chosen, drained=False)
    deadline = time.monotonic() + TAKEN_BACK_S
    while away := [card for card in _listed(state, chosen) if card["released"] or card["drained"]]:
        if any(card["lost"] for card in away) or time.monotonic() > deadline:
            raise Refusal(
                "not-back",
                f"{_gpu([card['index'] for card in away])} is not served: the driver does not have it",
                "look at nvidia-smi and dmesg; mgpud takes it back by itself once the driver has it",
            )
        time.sleep(POLL_S / 4)
    click.echo(f"{_gpu(chosen)}: takes containers")


def _gpu(cards: Sequence[int]) -> str:
    return f"GPU {', '.join(map(str, cards))}"


def _cards(state: StateDir) -> list[Card]:
    found: list[Card] = client.ask(state.control, "list")["cards"]
    return found


def _listed(state: StateDir, chosen: Sequence[int]) -> list[Card]:
    """MIG may have been switched meanwhile: those that are there no more are passed over."""
    return [card for card in _cards(state) if card["index"] in chosen]


def _is_drained(card: Card) -> bool:
    return bool(card["released"] and not card["containers"])


def _chosen(state: StateDir, gpus: Sequence[str]) -> list[int]:
    """The indices of what is named, by mgpud's numbers; of all without a name."""
    found = _cards(state)
    chosen: set[int] = set() if gpus else {card["index"] for card in found}
    for gpu in gpus:
        named = [
            card["index"]
            for card in found
            if (
                str(card["index"]) == gpu
                if gpu.isdigit()
                else card["uuid"].casefold().startswith(gpu.casefold())
            )
        ]
        if len(named) != 1:
            raise Refusal(
                "unknown-card",
                f"{len(named) or 'no'} GPUs of this node are named {quoted(gpu)}",
                "mgpu devices lists them",
            )
        chosen.add(named[0])
    if not chosen:
        raise Refusal("no-cards", "this node has no GPU", "mgpu devices lists what there is")
    return sorted(chosen)


def wait_until_free(state: StateDir, drain: bool) -> None:
    """Return once no container holds a GPU; Refusal at once when it is not to be waited for."""
    reported = 0
    while holders := _holders(state):
        if not drain:
            raise Refusal(
                "in-use",
                f"{_counted(holders)} a GPU: {_listed_names(holders)}",
                "stop them, or wait for them with --drain; nothing was changed",
            )
        if len(holders) != reported:
            click.echo(f"waiting: {_counted(holders)} a GPU: {_listed_names(holders)}")
            reported = len(holders)
        time.sleep(POLL_S)


def _holders(state: StateDir, cards: Sequence[int] = ()) -> list[dict[str, Any]]:
    """The containers with a grant, on one of the cards if any are named.

    None without a mgpud; unknown if its holder runs.
    """
    try:
        found: list[dict[str, Any]] = client.listing(state.control)["containers"]
    except Refusal as refusal:
        if refusal.code != "mgpud-not-running":
            raise
        # A connection would be taken for a container's.
        if is_bound(state.seccomp):
            raise Refusal(
                "in-use-unknown",
                f"mgpud does not run, but its holder does at {state.seccomp}: containers may hold a GPU",
                "start mgpud to see them, or stop the holder; nothing was changed",
            ) from refusal
        return []
    if not cards:
        return found
    return [each for each in found if any(card["index"] in cards for card in each["cards"])]


def _counted(holders: list[dict[str, Any]]) -> str:
    return "1 container holds" if len(holders) == 1 else f"{len(holders)} containers hold"


def _name(holder: dict[str, Any]) -> str:
    return render.name(holder) or str(holder["container_id"])[: render.SHORT_ID_CHARS]


def _listed_names(holders: list[dict[str, Any]]) -> str:
    return ", ".join(map(_name, holders[:SHOWN])) + (", …" if len(holders) > SHOWN else "")
