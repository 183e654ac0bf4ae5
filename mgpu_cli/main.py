"""The command group `mgpu`."""

from typing import IO, Any

import click
from click.exceptions import NoArgsIsHelpError

from mgpu_cli.completion import completion
from mgpu_cli.describe import describe
from mgpu_cli.devices import devices
from mgpu_cli.doctor.command import doctor
from mgpu_cli.drain import drain, undrain
from mgpu_cli.events import events
from mgpu_cli.evict import evict, resume
from mgpu_cli.explain import explain
from mgpu_cli.health import health
from mgpu_cli.install import install
from mgpu_cli.logs import logs
from mgpu_cli.policy import policy
from mgpu_cli.ps import ps
from mgpu_cli.run import run
from mgpu_cli.set import set_container
from mgpu_cli.timeline.command import timeline
from mgpu_cli.top import top
from mgpu_cli.uninstall import uninstall
from mgpu_cli.up import up
from mgpu_cli.upgrade import upgrade
from mgpu_cli.version import version
from mgpu_cli.web.command import web
from oci_specs import build
from oci_specs.refusal import Refusal


class _Wrong(click.ClickException):
    """Wrong usage, in the one line that a refusal has."""

    exit_code = 2

    def __init__(self, error: click.UsageError) -> None:
        what = " ".join(error.format_message().split()).rstrip(".")
        command = error.ctx.command_path if error.ctx else "mgpu"
        self.line = f"mgpu: {what[:1].lower()}{what[1:]}; see {command} --help"
        super().__init__(self.line)

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(self.line, file, err=file is None)


class _Group(click.Group):
    """Says a refusal in one line on stderr and exits with its status, whichever subcommand it comes from."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise _Wrong(error) from error

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except Refusal as refusal:
            click.echo(refusal.line(), err=True)
            ctx.exit(refusal.exit_status)
        except click.UsageError as error:
            raise _Wrong(error) from error


def _print_version(ctx: click.Context, _param: click.Parameter, is_asked: bool) -> None:
    if is_asked and not ctx.resilient_parsing:
        click.echo(f"mgpu {build.build()}")
        ctx.exit()


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Share NVIDIA GPUs between containers, with hard memory caps and the stock driver."""


for command in (
    up,
    upgrade,
    ps,
    top,
    timeline,
    web,
    events,
    logs,
    health,
    devices,
    describe,
    explain,
    set_container,
    evict,
    resume,
    policy,
    run,
    install,
    uninstall,
    drain,
    undrain,
    doctor,
    completion,
    version,
):
    main.add_command(command)
