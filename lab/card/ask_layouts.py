"""Asks the compiler for what names.def wants to know of a driver's source tree (src/nvidia of the driver's
source package, or a checkout), and prints a file of facts.

    python3 lab/card/ask_layouts.py TREE > lab/card/facts/VERSION.def
"""

import re
import subprocess
import sys
from pathlib import Path

NAMES = Path(__file__).parent / "facts" / "names.def"
RM = (
    "kernel/inc interface arch/nvalloc/common/inc arch/nvalloc/common/inc/gsp arch/nvalloc/unix/include inc "
    "inc/os generated src/mm/uvm/interface inc/libraries src/libraries inc/kernel"
)
COMMON = (
    "sdk/nvidia/inc sdk/nvidia/inc/hw shared/inc shared/msgq/inc inc uproc/os/libos-v2.0.0/include "
    "uproc/os/common/include inc/swref inc/swref/published nvswitch/kernel/inc nvswitch/interface "
    "nvswitch/common/inc inc/displayport nvlink/interface nvlink/inband/interface mbedtls/include mbedtls/nvidia"
)
DEFINES = (
    "_LANGUAGE_C __NO_CTYPE NVRM LOCK_VAL_ENABLED=0 PORT_ATOMIC_64_BIT_SUPPORTED=1 PORT_IS_KERNEL_BUILD=1 "
    "PORT_IS_CHECKED_BUILD=0 PORT_MODULE_atomic=1 PORT_MODULE_core=1 PORT_MODULE_cpu=1 PORT_MODULE_crypto=1 "
    "PORT_MODULE_debug=1 PORT_MODULE_memory=1 PORT_MODULE_safe=1 PORT_MODULE_string=1 PORT_MODULE_sync=1 "
    "PORT_MODULE_thread=1 PORT_MODULE_util=1 PORT_MODULE_example=0 PORT_MODULE_mmio=0 PORT_MODULE_time=0 "
    "RS_STANDALONE=0 RS_STANDALONE_TEST=0 RS_COMPATABILITY_MODE=1 RS_PROVIDES_API_STATE=0 "
    "NV_CONTAINERS_NO_TEMPLATES INCLUDE_NVLINK_LIB INCLUDE_NVSWITCH_LIB NV_PRINTF_STRINGS_ALLOWED=0 "
    "NV_ASSERT_FAILED_USES_STRINGS=0 PORT_ASSERT_FAILED_USES_STRINGS=0 NV_UNIX NV_LINUX NVCPU_X86_64 _X86_64_"
)
HEADERS = """
#include <stddef.h>
#include "core/core.h"
#include "os/os.h"
#include "vgpu/rpc_headers.h"
#include "gpu/mem_mgr/virt_mem_allocator_common.h"
#define RPC_STRUCTURES
#define RPC_GENERIC_UNION
#include "g_rpc-structures.h"
#undef RPC_STRUCTURES
#undef RPC_GENERIC_UNION
#define RPC_MESSAGE_STRUCTURES
#include "g_rpc-message-header.h"
#undef RPC_MESSAGE_STRUCTURES
#include "gpu/gpu.h"
#include "gpu/gsp/message_queue.h"
#include "gpu/gsp/message_queue_priv.h"
#include "gpu/gsp/kernel_gsp.h"
#include "gpu/gsp/gsp_static_config.h"
"""
WHERE_THERE = (
    "gpu/gsp/gsp_init_args.h ctrl/ctrl2080.h ctrl/ctrl90f1.h ctrl/ctrl0080.h alloc/alloc_channel.h nvos.h "
    "kernel/gpu/fifo/kernel_fifo.h kernel/gpu/gpu_engine_type.h kernel/gpu/intr/engine_idx.h "
    "kernel/gpu/eng_desc.h class/cl9067.h kernel/gpu/intr/intr.h gpu/fsp/kern_fsp.h gsp/gspifpub.h"
)


def wanted() -> list[tuple[str, str]]:
    return re.findall(r"^NAMED\((\w+), (.*)\)$", NAMES.read_text(), re.MULTILINE)


# Of what that version has not.
ABSENT = 0xFFFFFFFF


def ask(tree: Path, names: list[tuple[str, str]]) -> dict[str, int]:
    """Each value becomes a constant of an object file's, in assembler."""
    folders = [tree / "src/nvidia" / folder for folder in RM.split()]
    folders += [tree / "src/common" / folder for folder in COMMON.split()]
    source = HEADERS + "".join(
        f'#if __has_include("{header}")\n#include "{header}"\n#endif\n' for header in WHERE_THERE.split()
    )
    before = len(source.splitlines())
    source += "".join(f"long asked_{name} = (long)({expression});\n" for name, expression in names)
    flags = [f"-I{folder}" for folder in folders] + [f"-D{define}" for define in DEFINES.split()]
    command = ["gcc", "-std=gnu11", "-w", "-O0", "-S", "-o", "-", "-x", "c", *flags, "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    if done.returncode:
        wrong = {int(line) - before - 1 for line in re.findall(r"^<stdin>:(\d+):\d+: ", done.stderr, re.M)}
        absent = {name for at, (name, _) in enumerate(names) if at in wrong}
        if not absent:
            raise SystemExit(f"{tree}: {done.stderr[:2000]}")
        there = [(name, expression) for name, expression in names if name not in absent]
        return ask(tree, there) | dict.fromkeys(absent, ABSENT)
    found = re.findall(r"^asked_(\w+):\n\s+\.(quad|zero)\s+(-?\d+)", done.stdout, re.MULTILINE)
    return {name: int(value) & 0xFFFFFFFF if how == "quad" else 0 for name, how, value in found}


def main() -> None:
    names, tree = wanted(), Path(sys.argv[1])
    values = ask(tree, names)
    for name, _ in names:
        print(f"VALUE({name}, {values[name]})")


if __name__ == "__main__":
    main()
