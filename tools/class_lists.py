"""Writes sim/card/facts/class_lists.def from a clone of NVIDIA's open-gpu-kernel-modules: `class_lists.py
CLONE`.

What RM answers to GPU_GET_CLASSLIST is the chip's list of generated/g_gpu_class_list.c, without classes of no
engine and each but once (gpuBuildClassDB(), gpuGetClassList()). Every tag of a served branch is read; a row
says from which on and until before which the list has the class, 0, 0 where that is as long as there is a
list for the chip.
"""

import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
TARGET = Path("sim/card/facts/class_lists.def")
LIST = "src/nvidia/generated/g_gpu_class_list.c"
NUMBERS = "src/nvidia/generated/g_allclasses.h"
CHIPS = ("TU102", "TU104", "GA100", "GA102", "AD102", "AD104", "GH100", "GB100", "GB202")
FIRST = (535, 86)
# Drivers for developers of Vulkan, which no branch of ours is.
BESIDE = {(550, 40), (570, 123), (580, 94)}
NO_ENGINE = "ENG_INVALID"
# No open driver knows Volta. nouveau and NVIDIA's open-gpu-doc tell the classes of its engines; the others
# are those that the next chip has of engines without a generation, its display and video left out.
VOLTA, VOLTA_IS_LIKE = "GV100", "TU102"
VOLTA_CLASSES = {"VOLTA_A": 0xC397, "VOLTA_DMA_COPY_A": 0xC3B5, "VOLTA_COMPUTE_A": 0xC3C0}
NOT_VOLTA = re.compile(r"TURING_|NVC|NVENC|NVFBC|NV04_DISPLAY|GF100_HDACODEC")
HEAD = """/* What RM lists as the classes of a chip (GPU_GET_CLASSLIST). Written by tools/class_lists.py from the
 * tables of NVIDIA's open-gpu-kernel-modules, which are in the order of the names; GV100, which those do not
 * know, from nouveau and NVIDIA's open-gpu-doc.
 * CHIP(name, the version from which on the driver knows it), VIDEO(chip, its decoders, encoders, JPEG
 * decoders and optical flow engines), LISTED(class, number, from which version on, until before which,
 * chips); 0, 0: always. */
#ifndef CHIP
#define CHIP(name, major, minor)
#endif
#ifndef VIDEO
#define VIDEO(chip, nvdec, nvenc, nvjpg, ofa)
#endif
#ifndef LISTED
#define LISTED(name, number, since_major, since_minor, until_major, until_minor, chips)
#endif
"""
ENDS_WITH = """#undef CHIP
#undef VIDEO
#undef LISTED
"""

Version = tuple[int, int]


def shown(clone: Path, tag: str, path: str) -> str:
    done = subprocess.run(
        ["git", "-C", clone, "show", f"{tag}:{path}"], capture_output=True, text=True, check=False
    )
    return done.stdout


def tags(clone: Path) -> list[tuple[Version, str]]:
    """The first point release of each served version."""
    found: dict[Version, tuple[int, str]] = {}
    names = subprocess.check_output(["git", "-C", clone, "tag"], text=True)
    for name in names.split():
        if not re.fullmatch(r"\d+\.\d+(\.\d+)?", name):
            continue
        major, minor, *point = map(int, name.split("."))
        version, last = (major, minor), point[0] if point else 0
        if version >= FIRST and version not in BESIDE and (version not in found or last < found[version][0]):
            found[version] = last, name
    return sorted((version, name) for version, (_, name) in found.items())


def lists(text: str) -> dict[str, list[str]]:
    found = {}
    for chip, body in re.findall(
        r"CLASSDESCRIPTOR hal(\w+?)ClassDescriptorList\[\] = \{(.*?)\};", text, re.S
    ):
        pairs = re.findall(r"\{ (\w+), (ENG_[\w()]+) \}", body)
        found[chip] = list(dict.fromkeys(name for name, engine in pairs if engine != NO_ENGINE))
    return found


def video(text: str) -> list[str]:
    """A row for each chip that has video: how many decoders, encoders, JPEG decoders and optical flow
    engines.
    """
    found = []
    for chip, body in re.findall(
        r"CLASSDESCRIPTOR hal(\w+?)ClassDescriptorList\[\] = \{(.*?)\};", text, re.S
    ):
        engines = [
            re.findall(rf"_VIDEO_\w+, ENG_{kind}", body) for kind in ("NVDEC", "NVENC", "NVJPE?G", "OFA")
        ]
        if chip in CHIPS and any(engines):
            found.append(f"VIDEO({chip}, {', '.join(str(len(each)) for each in engines)})")
    return sorted(found)


def numbers(clone: Path, tag: str) -> dict[str, int]:
    text = shown(clone, tag, NUMBERS)
    return {
        name: int(value, 16) for name, value in re.findall(r"#define\s+(\w+)\s+\((0x[0-9a-fA-F]+)\)", text)
    }


def with_volta(by_chip: dict[str, list[str]]) -> dict[str, list[str]]:
    like = [name for name in by_chip[VOLTA_IS_LIKE] if not NOT_VOLTA.match(name)]
    return {**by_chip, VOLTA: sorted([*like, *VOLTA_CLASSES])}


def written(clone: Path) -> str:
    """The file's text. SystemExit where a list is not in the order of the names, which the file has for all
    of them.
    """
    first: dict[str, Version] = {}
    open_since: dict[tuple[str, str], Version] = {}
    rows: dict[tuple[str, Version, Version], set[str]] = {}
    number = dict(VOLTA_CLASSES)
    last = ""
    for version, tag in tags(clone):
        last = tag
        number.update(numbers(clone, tag))
        now = with_volta(lists(shown(clone, tag, LIST)))
        for chip in (chip for chip in (VOLTA, *CHIPS) if chip in now):
            if now[chip] != sorted(now[chip]):
                sys.exit(f"{tag}: the list of {chip} is not in the order of the names")
            new = first.setdefault(chip, version) == version
            for name in now[chip]:
                open_since.setdefault((chip, name), (0, 0) if new else version)
            for name in {name for of, name in open_since if of == chip} - set(now[chip]):
                rows.setdefault((name, open_since.pop((chip, name)), version), set()).add(chip)
    for (chip, name), since in open_since.items():
        rows.setdefault((name, since, (0, 0)), set()).add(chip)
    lines = [
        HEAD.rstrip(),
        *(f"CHIP({chip}, {major}, {minor})" for chip, (major, minor) in sorted(first.items())),
        *video(shown(clone, last, LIST)),
    ]
    for (name, since, until), chips in sorted(rows.items()):
        versions = ", ".join(map(str, (*since, *until)))
        lines.append(
            f"LISTED({name}, {number[name]:#x}, {versions}, {' | '.join(f'ON({c})' for c in sorted(chips))})"
        )
    return "\n".join([*lines, ENDS_WITH])


if __name__ == "__main__":
    (REPOSITORY / TARGET).write_text(written(Path(sys.argv[1])).rstrip() + "\n")
