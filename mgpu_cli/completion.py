"""`mgpu completion`: what a shell has to read to complete mgpu's commands and options."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "mgpu"
# What click's own handler looks for in the environment.
VARIABLE = "_MGPU_COMPLETE"


@click.command(short_help="Print a completion script for a shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what SHELL has to read to complete mgpu's commands, options and values.

    \b
    bash:  mgpu completion bash > /usr/local/share/bash-completion/completions/mgpu
    zsh:   mgpu completion zsh > /usr/local/share/zsh/site-functions/_mgpu
    fish:  mgpu completion fish > /etc/fish/completions/mgpu.fish

    A shell that is started afterwards completes. bash needs version 4.4 and the package bash-completion.
    """
    found = get_completion_class(shell)
    assert found is not None, shell
    click.echo(found(ctx.find_root().command, {}, PROGRAM, VARIABLE).source())
