"""systemd: units of the holder and of mgpud, and a preset."""

from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path

from install import whole_file
from install.change import Target
from install.edit import Edited, NotHere
from install.engine import Engine, Intent, always
from install.parts import NODE_CONFIG, Parts

CONFIG = Path("/etc/systemd/system")
PRESETS = Path("/etc/systemd/system-preset")
UNITS = ("mgpu-holder.service", "mgpud.service")
# systemd.exec(5), of ProtectHome and PrivateTmp.
HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
WANTED = "multi-user.target.wants"
PRESET = "50-mgpu.preset"
UNINSTALL = "mgpu uninstall systemd"


def rendered(name: str, parts: Parts) -> str:
    """A file of install/units with this installation's paths in it."""
    text = resources.files("install").joinpath("units", name).read_text()
    for key, value in {
        "HOLDER": parts.holder,
        "MGPUD": parts.mgpud,
        "ROOT": parts.root,
        "RUNTIME_DIRECTORY": parts.root.removeprefix("/run/"),
        "NODE_CONFIG": str(NODE_CONFIG),
    }.items():
        text = text.replace(f"@{key}@", value)
    return text


def targets(parts: Parts, intent: Intent) -> Sequence[Target]:
    units = intent.config or CONFIG
    return (
        _holder(units, parts),
        *(whole_file.target(units / name, rendered(name, parts), UNINSTALL) for name in UNITS[1:]),
        whole_file.target(PRESETS / PRESET, rendered(PRESET, parts), UNINSTALL),
        *(_enabled(units, name) for name in UNITS),
    )


def _holder(units: Path, parts: Parts) -> Target:
    """Its unit, with a word of warning where it would not find its program."""
    unit = whole_file.target(units / UNITS[0], rendered(UNITS[0], parts), UNINSTALL)
    blocked = [folder for folder in HIDDEN if Path(parts.holder).is_relative_to(folder)]
    if not blocked:
        return unit
    note = f"{UNITS[0]} does not see {blocked[0]}, where this mgpu is (ProtectHome, PrivateTmp): install it below /opt"

    def add(text: str | None) -> Edited:
        edited = unit.add(text)
        return replace(edited, notes=(*edited.notes, note))

    return replace(unit, add=add)


def _enabled(units: Path, name: str) -> Target:
    """The link that systemctl enable makes, which is to go with its unit."""

    def remove(text: str) -> Edited | NotHere:
        return Edited(None) if Path(text).name == name else NotHere()

    return Target(path=units / WANTED / name, add=Edited, remove=remove, link=True)


ENGINE = Engine(
    name="systemd",
    program="systemctl",
    config=CONFIG,
    targets=targets,
    restart=("systemctl daemon-reload", f"systemctl enable --now {' '.join(UNITS)}"),
    undo=(f"systemctl stop {' '.join(reversed(UNITS))}", "systemctl daemon-reload"),
    after=always(
        "mgpu devices",
    ),
)
