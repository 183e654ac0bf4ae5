"""The manual page mgpu(1): it is what the commands say, groff reads it, and it is installed."""

import pytest
from click import Group

from mgpu_cli.main import main
from tests.support.commands import attempt
from tests.support.places import PREFIX
from tools import man


def test_page_is_what_the_commands_say() -> None:
    assert isinstance(main, Group)
    assert man.PAGE.read_text() == man.page(main), "write it anew: python -m tools.man"


def rendered() -> str:
    argv = ["groff", "-man", "-Tascii", "-P-cbou", "-ww", str(man.PAGE)]
    done = attempt(*argv)
    assert (done.status, done.err) == (0, "")
    return done.out


def test_groff_has_nothing_to_warn_of_and_shows_all_commands() -> None:
    assert isinstance(main, Group)
    shown = rendered()
    assert [name for name in main.commands if f"mgpu {name} " not in shown] == []
    assert "--sim PROFILE[:COUNT]" in shown


def test_text_that_looks_like_a_request_is_shown() -> None:
    assert man._line(".so /etc/passwd") == "\\&.so /etc/passwd"
    assert man._text("a-b\\c") == "a\\-b\\ec"


def test_page_is_installed() -> None:
    installed = PREFIX / "share" / "man" / "man1" / "mgpu.1"
    if not (PREFIX / "libexec" / "mgpu").is_dir():
        pytest.skip(f"mgpu is not installed in {PREFIX}; make test installs it")
    assert installed.read_text() == man.PAGE.read_text()
