"""mgpud: the node's arbiter. It serves the running containers first, and loads the rest afterwards."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from native_sched.daemon.node import boost

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

DRIVERS = ("nvidia", "sim")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    import argparse

    parser = argparse.ArgumentParser(prog="mgpud", description="The node's GPU arbiter.")
    parser.add_argument(
        "--root", default="/run/mgpu", help="folder of sockets and state (default %(default)s)"
    )
    parser.add_argument("--driver", choices=DRIVERS, default="nvidia")
    parser.add_argument(
        "--rm-table",
        help="take the driver for one of that version, such as 580 (default: node.toml's driver_table)",
    )
    parser.add_argument("--node-config", help="node.toml (default ROOT/node.toml if it is there)")
    parser.add_argument(
        "--take-over", action="store_true", help="end the mgpud that serves, and serve its containers"
    )
    parser.add_argument("--end-with", type=int, metavar="PID", help="end when that process does")
    parser.add_argument(
        "--standby",
        action="store_true",
        help="load, and serve when a byte comes on standard input: the holder's, for the one after a death",
    )
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="of lines on stderr")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs until SIGTERM. Exit status 1 with one line on stderr when it cannot serve."""
    stands_by = "--standby" in (sys.argv if argv is None else argv)
    nice = 0 if stands_by else boost.begin()
    import resource
    from contextlib import ExitStack

    from native_sched.daemon.log import LOG
    from oci_specs.refusal import Refusal

    arguments = _arguments(argv)
    LOG.form = arguments.log_format
    # A pidfd for each thread that calls, in each container, comes to more than the usual soft limit.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    called = None
    if stands_by:
        from native_sched.daemon import standby

        called = standby.wait()
        if called is None:
            return 0
        nice = boost.begin()
    if arguments.take_over:
        # The previous mgpud goes on serving while this one loads.
        from native_sched.daemon import serving
    try:
        from native_sched.daemon import mgpud

        with ExitStack() as stack:
            begun = mgpud.begin(stack, arguments, called)
            from native_sched.daemon import serving

            serving.run(begun, nice)
    except Refusal as refusal:
        print(refusal.line(), file=sys.stderr)
    except OSError as error:
        print(f"mgpud: {error.filename or arguments.root}: {error.strerror or error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
