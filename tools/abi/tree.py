"""A source tree of open-gpu-kernel-modules: which names its headers have, and what the driver's own tables
say of them.

Names are found in the text, numbers and sizes are the compiler's.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tools.abi.problem import Problem
from tools.abi.release import is_version

SDK = Path("src/common/sdk/nvidia/inc")
UNIX = Path("src/nvidia/arch/nvalloc/unix/include")
GENERATED = Path("src/nvidia/generated")
UVM = Path("kernel-open/nvidia-uvm")
FOLDERS = (SDK, UNIX, GENERATED, UVM, Path("kernel-open/common/inc"))
STATUSES = SDK / "nvstatuscodes.h"
CLASSES = GENERATED / "g_allclasses.h"
ESCAPES = ("nv_escape.h", "nv-ioctl-numbers.h", "nv-ioctl-numa.h")
UVM_COMMANDS = (UVM / "uvm_ioctl.h", UVM / "uvm_linux_ioctl.h")
FLAGS = Path("src/nvidia/inc/kernel/rmapi/control.h")
RESOURCES = tuple(
    Path("src/nvidia") / below / "resource_list.h" for below in ("src/kernel/rmapi", "inc/kernel/rmapi")
)
NEEDED = (SDK / "nvos.h", STATUSES, CLASSES, UNIX / ESCAPES[0], UNIX / "nv-ioctl.h", *UVM_COMMANDS, FLAGS)
# In this order: what the later ones need.
HEADERS = ("nvtypes.h", "nvos.h", "nvstatus.h", "nvlimits.h", "rs_access.h")
LATER_HEADERS = (
    "nv_escape.h",
    "nv-ioctl.h",
    "nv-ioctl-numbers.h",
    "nv-ioctl-numa.h",
    "nv-ioctl-lockless-diag.h",
    "nv-unix-nvos-params-wrappers.h",
    "uvm_ioctl.h",
    "uvm_linux_ioctl.h",
    "g_allclasses.h",
)
# Commands whose number is given only where Windows builds.
_NOT_ON_LINUX = frozenset({"UVM_REGION_SET_BACKING", "UVM_REGION_UNSET_BACKING"})
_FINN = r"\(0x[0-9a-fA-F]+U?\)\s*/\* finn: Evaluated from \"\(+FINN_"
_METHOD = re.compile(
    r"/\*flags=\*/\s*(0x[0-9a-f]+)u,\s*/\*accessRight=\*/\s*(0x[0-9a-f]+)u,\s*/\*methodId=\*/\s*(0x[0-9a-f]+)u,"
    r"\s*/\*paramSize=\*/\s*(?:sizeof\((\w+)\)|0\b).*?/\*func=\*/\s*\"(\w+)\"",
    re.S,
)


@dataclass(frozen=True)
class Method:
    """What the driver's table says of a control: whom it serves, and the struct whose size it takes."""

    privilege: str
    access_right: int
    params: str | None
    function: str


class HeaderTree:
    def __init__(self, root: Path) -> None:
        self.root = root
        if not root.is_dir():
            raise Problem(
                f"{root}: is not a folder: give the root of a source tree of open-gpu-kernel-modules"
            )
        for path in NEEDED:
            if not (root / path).is_file():
                raise Problem(f"{root}: lacks {path}: give a whole source tree of open-gpu-kernel-modules")

    @cached_property
    def version(self) -> str:
        path = self.root / "version.mk"
        found = (
            re.search(r"^NVIDIA_VERSION\s*=\s*(\S+)$", path.read_text(), re.M) if path.is_file() else None
        )
        if found is None or not is_version(found[1]):
            raise Problem(f"{self.root}: version.mk names no version: give it with --version")
        return found[1]

    @property
    def folders(self) -> list[Path]:
        return [self.root / folder for folder in FOLDERS]

    def headers(self) -> list[str]:
        """What the sizes are compiled from: everything that callers of the driver may include."""
        sdk = self.root / SDK
        below = [
            path.relative_to(sdk).as_posix()
            for folder in ("alloc", "class", "ctrl")
            for path in sorted((sdk / folder).rglob("*.h"))
        ]
        return [
            header
            for header in (*HEADERS, *below, *LATER_HEADERS)
            if any((folder / header).is_file() for folder in self.folders)
        ]

    def _text(self, path: Path) -> str:
        return (self.root / path).read_text(errors="replace")

    def statuses(self) -> list[str]:
        return re.findall(r"^NV_STATUS_CODE\((\w+),", self._text(STATUSES), re.M)

    def escapes(self) -> list[str]:
        paths = [
            next((folder / name for folder in self.folders if (folder / name).is_file()), None)
            for name in ESCAPES
        ]
        texts = "".join(path.read_text(errors="replace") for path in paths if path)
        return sorted(set(re.findall(r"^#define\s+(NV_ESC_\w+)\s", texts, re.M)))

    def uvm_commands(self) -> list[str]:
        text = "".join(map(self._text, UVM_COMMANDS))
        named = re.findall(r"^#define\s+(UVM_\w+)\s+(?:UVM_IOCTL_BASE\(\w+\)|0x3\w{7}\b)", text, re.M)
        return sorted(set(named) - _NOT_ON_LINUX)

    def classes(self) -> dict[str, str | None]:
        """Those that the driver knows, and the parameters that its list of resources names."""
        names = re.findall(r"^#define\s+(\w+)\s+\(?0x[0-9a-fA-F]+U?\)?", self._text(CLASSES), re.M)
        return dict.fromkeys([*names, *self._class_headers()]) | self._resources()

    def _class_headers(self) -> Iterator[str]:
        """Classes whose header says their number, such as Volta's, which only the closed module has."""
        for path in sorted((self.root / SDK / "class").glob("cl????.h")):
            number = path.stem[2:]
            text = path.read_text(errors="replace")
            found = re.findall(rf"^#define\s+(\w+)\s+\(?0x0*{number}U?\)?\s", text, re.M | re.I)
            yield from (name for name in found if not name.endswith("_MESSAGE_ID"))

    def _resources(self) -> dict[str, str | None]:
        for path in RESOURCES:
            if (self.root / path).is_file():
                entries = re.findall(
                    r"^RS_ENTRY\(\s*/\* External Class\s*\*/ (\w+),.*?"
                    r"/\* Alloc Param Info\s*\*/ (?:RS_(?:REQUIRED|OPTIONAL)\((\w+)\)|RS_NONE)",
                    self._text(path),
                    re.M | re.S,
                )
                return {name: params or None for name, params in entries}
        raise Problem(
            f"{self.root}: lacks resource_list.h: give a whole source tree of open-gpu-kernel-modules"
        )

    def _control_headers(self) -> Iterator[str]:
        for path in sorted((self.root / SDK / "ctrl").rglob("*.h")):
            yield path.read_text(errors="replace")

    def controls(self) -> dict[str, str | None]:
        """By symbol the params that the headers say, if they do."""
        texts = "".join(self._control_headers())
        found: dict[str, str | None] = {}
        structs = set(re.findall(r"^\} (\w+_PARAMS)\b|^typedef \w+ (\w+_PARAMS);", texts, re.M))
        params = {name for pair in structs for name in pair if name}
        messages = re.compile(rf"^#define\s+(NV\w*_CTRL_\w+)\s+{_FINN}[^\"]*?(\w+)_MESSAGE_ID\"", re.M)
        by_message = dict(messages.findall(texts))
        for name in re.findall(rf"^#define\s+(NV\w*_CTRL_\w+)\s+{_FINN}", texts, re.M):
            likely = (f"{name.replace('_CTRL_CMD_', '_CTRL_')}_PARAMS", f"{name}_PARAMS")
            found[name] = next((struct for struct in likely if struct in params), by_message.get(name))
        for name, other in re.findall(
            r"^#define\s+(NV\w*_CTRL_\w+)\s+\(?(NV\w*_CTRL_\w+)\)?\s*$", texts, re.M
        ):
            if other in found:
                found[name] = found[other]
        return found

    def methods(self) -> dict[int, Method]:
        """By number, of the tables that the driver looks controls up in."""
        flags = dict(
            re.findall(r"^#define RMCTRL_FLAGS_(\w+)\s+(0x[0-9a-fA-F]+)\b", self._text(FLAGS), re.M)
        )
        bits = {name: int(value, 16) for name, value in flags.items()}
        found = {}
        for path in sorted((self.root / GENERATED).glob("g_*_nvoc.c")):
            for mask, access, number, params, function in _METHOD.findall(path.read_text(errors="replace")):
                names = ("NON_PRIVILEGED", "PRIVILEGED", "INTERNAL")
                privilege = next((name for name in names if int(mask, 16) & bits.get(name, 0)), "KERNEL")
                found[int(number, 16)] = Method(privilege, int(access, 16), params or None, function)
        if not found:
            raise Problem(
                f"{self.root}: lacks {GENERATED}/g_*_nvoc.c: give a whole source tree of open-gpu-kernel-modules"
            )
        return found
