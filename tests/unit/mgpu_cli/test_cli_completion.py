"""`mgpu completion`, as bash, zsh and fish themselves complete by it."""

import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from mgpu_cli.completion import SHELLS
from mgpu_cli.main import main
from tests.support.commands import attempt
from tests.support.places import MGPU

# Each prints the candidates for a line. In zsh they go to two functions of its line editor, which is not
# there.
BASH = """
source "$SCRIPT"
COMP_WORDS=($LINE); [ "${LINE% }" = "$LINE" ] || COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_mgpu_completion mgpu
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
autoload -Uz compinit; compinit -u -D
compadd() { print -l -- "${(@P)5}" }
_describe() { print -l -- "${(@)${(@P)3}%%:*}" }
words=(${(z)LINE}); [[ $LINE == *" " ]] && words+=("")
CURRENT=${#words}
source "$SCRIPT"
_mgpu_completion
"""
FISH = 'source "$SCRIPT"; complete --do-complete "$LINE"'
PROGRAMS = {
    "bash": ["bash", "--norc", "-c", BASH],
    "zsh": ["zsh", "-f", "-c", ZSH],
    "fish": ["fish", "--no-config", "-c", FISH],
}


def completed(shell: str, line: str, folder: Path) -> list[str]:
    script = CliRunner().invoke(main, ["completion", shell])
    assert script.exit_code == 0, script.output
    (folder / "mgpu-completion").write_text(script.stdout)
    environment = {
        "HOME": str(folder),
        "LINE": line,
        "PATH": f"{MGPU.parent}:{os.environ['PATH']}",
        "SCRIPT": str(folder / "mgpu-completion"),
    }
    done = attempt(*PROGRAMS[shell], env=environment, cwd=folder)
    return [line.partition("\t")[0].strip() for line in done.out.splitlines() if line.strip()]


@pytest.mark.parametrize("shell", SHELLS)
def test_shell_completes_commands_options_and_values(shell: str, tmp_path: Path) -> None:
    assert shutil.which(shell), f"{shell} is not installed: tools/setup.sh test installs it"
    assert completed(shell, "mgpu up", tmp_path) == ["up", "upgrade"]
    assert "--follow" in completed(shell, "mgpu timeline --", tmp_path)
    assert sorted(completed(shell, "mgpu completion ", tmp_path)) == sorted(SHELLS)


def test_unknown_shell_is_wrong_usage() -> None:
    refused = CliRunner().invoke(main, ["completion", "tcsh"])
    assert refused.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in refused.output
