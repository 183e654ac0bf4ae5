"""`mgpu web`: the node in a browser."""

import ipaddress
import signal
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from mgpu_cli import options
from mgpu_cli.state import StateDir
from mgpu_cli.web.cluster import ClusterView, Node
from mgpu_cli.web.server import WebServer
from mgpu_cli.web.view import View
from oci_specs.refusal import Refusal, quoted
from runtime_hook import needs

TOKEN_LEAST_CHARS = 16


class _Address(click.ParamType[Any]):
    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        if value.startswith("unix:"):
            return Path(value.removeprefix("unix:"))
        host, _, port = value.rpartition(":")
        try:
            return str(ipaddress.ip_address(host.strip("[]"))), int(port)
        except ValueError:
            self.fail(f"{value!r} is neither ADDRESS:PORT nor unix:PATH", param, ctx)


class _Node(click.ParamType[Any]):
    name = "node"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        name, _, url = value.partition("=")
        if name and urlsplit(url).scheme in ("http", "https", "unix"):
            return Node(name, url)
        self.fail(f"{value!r} is not NAME=URL, with http://, https:// or unix:PATH", param, ctx)


@click.command(short_help="Show the node in a browser.")
@options.root
@click.option(
    "--listen",
    "address",
    type=_Address(),
    default="127.0.0.1:9412",
    show_default=True,
    metavar="ADDRESS:PORT|unix:PATH",
    help="Where to serve it. Beyond loopback only with a token.",
)
@click.option(
    "--token-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help=f"A file with the word that readers have to bring, of {TOKEN_LEAST_CHARS} characters or more.",
)
@click.option(
    "--node",
    "nodes",
    type=_Node(),
    multiple=True,
    metavar="NAME=URL",
    help="Show these nodes instead, by their metrics: http://, https:// or unix:PATH.",
)
def web(
    state: StateDir, address: tuple[str, int] | Path, token_file: Path | None, nodes: tuple[Node, ...]
) -> None:
    """Serve a page with the GPUs, who has and had them, memory, refusals and events, until ^C.

    With --node it shows the GPUs of those nodes, who has them, and what was refused and evicted there.

    The page changes nothing. On loopback without a token every user of the node can read it, and names of
    pods are in it. It is plain HTTP: beyond loopback put it behind a proxy with TLS.
    """
    token = _token(token_file) if token_file else ""
    if not isinstance(address, Path) and not token and not ipaddress.ip_address(address[0]).is_loopback:
        raise Refusal(
            "no-token",
            f"{address[0]} can be reached from elsewhere",
            "give --token-file, or listen on 127.0.0.1 or unix:PATH",
        )
    if isinstance(address, Path) and address.is_socket() and not needs.listens(address):
        address.unlink()
    view: View | ClusterView = ClusterView(nodes) if nodes else View(state)
    page = "cluster.html" if nodes else "page.html"
    try:
        server = WebServer(address, view.now, view.log, token, page)
    except (OSError, OverflowError) as error:
        raise Refusal("cannot-listen", f"cannot listen there: {error}", "choose another --listen") from error
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            click.echo(_where(server, address, token))
            server.serve_forever()
    finally:
        server.server_close()
        if isinstance(address, Path):
            address.unlink(missing_ok=True)


def _where(server: WebServer, address: tuple[str, int] | Path, token: str) -> str:
    if isinstance(address, Path):
        return f"serving on {address}, for root: ssh -L 9412:{address} NODE brings it elsewhere"
    shown = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"serving http://{shown}:{server.server_address[1]}/{'#token=TOKEN' if token else ''}"


def _token(file: Path) -> str:
    token = file.read_text(errors="replace").strip()
    if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise Refusal("weak-token", f"{quoted(file)} can be read by others", f"chmod 600 {file}")
    if len(token) < TOKEN_LEAST_CHARS or not token.isascii() or not token.isprintable():
        raise Refusal(
            "weak-token",
            f"{quoted(file)} holds no word of {TOKEN_LEAST_CHARS} plain characters or more",
            f"openssl rand -hex 16 >{file}",
        )
    return token
