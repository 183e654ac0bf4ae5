"""A header tree of the shape of NVIDIA's, small, for what the tool says of one."""

from dataclasses import dataclass, field
from pathlib import Path

SDK = "src/common/sdk/nvidia/inc"
UNIX = "src/nvidia/arch/nvalloc/unix/include"
CONTROL = "NV2080_CTRL_CMD_GPU_GET_NAME_STRING"
PARAMS = "NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS"


@dataclass
class Tree:
    """What its driver has; a test changes one thing."""

    version: str = "700.10.01"
    escapes: dict[str, int] = field(
        default_factory=lambda: {"NV_ESC_RM_FREE": 0x29, "NV_ESC_RM_CONTROL": 0x2A}
    )
    uvm: dict[str, int] = field(default_factory=lambda: {"UVM_FREE": 34})
    control: int = 0x20800110
    name_bytes: int = 64
    flags: int = 0x8
    status: int = 0x3

    def write(self, root: Path) -> Path:
        for name, text in self._files().items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        return root

    def _files(self) -> dict[str, str]:
        escapes = "".join(f"#define {name} {number:#x}\n" for name, number in self.escapes.items())
        uvm = "".join(
            f"#define {name} UVM_IOCTL_BASE({number})\n"
            f"typedef struct {{ NvU64 base; NvU32 rmStatus; }} {name}_PARAMS;\n"
            for name, number in self.uvm.items()
        )
        return {
            "version.mk": f"NVIDIA_VERSION = {self.version}\n",
            f"{SDK}/nvtypes.h": "#pragma once\ntypedef unsigned int NvU32;\ntypedef unsigned long long NvU64;\n"
            "typedef NvU32 NvHandle;\n",
            f"{SDK}/nvos.h": "#pragma once\n#include <nvtypes.h>\n"
            "typedef struct { NvHandle hRoot, hObjectParent, hObjectOld; NvU32 status; } NVOS00_PARAMETERS;\n"
            "typedef struct { NvHandle hClient, hObject; NvU32 cmd, flags; NvU64 params; NvU32 paramsSize, status; }\n"
            "NVOS54_PARAMETERS;\n",
            f"{SDK}/nvstatuscodes.h": f'NV_STATUS_CODE(NV_ERR_BUSY_RETRY, {self.status:#x}, "busy")\n',
            f"{SDK}/nvstatus.h": "#pragma once\n#define NV_STATUS_CODE(name, code, text) name = (code),\n"
            "typedef enum {\n#include <nvstatuscodes.h>\n} NV_STATUS;\n",
            f"{SDK}/class/cl2080.h": "#define NV20_SUBDEVICE_0 (0x00002080U)\n"
            "typedef struct { NvU32 subDeviceId; } NV2080_ALLOC_PARAMETERS;\n",
            f"{SDK}/ctrl/ctrl2080.h": f"#define {CONTROL} ({self.control:#x}U) /* finn: Evaluated from "
            f'"(FINN_NV20_SUBDEVICE_0_GPU_INTERFACE_ID << 8) | {PARAMS}_MESSAGE_ID" */\n'
            f"typedef struct {PARAMS} {{ NvU32 gpuNameStringFlags;\n"
            f"union {{ unsigned char ascii[{self.name_bytes}]; }} gpuNameString;\n}} {PARAMS};\n",
            f"{UNIX}/nv_escape.h": escapes,
            f"{UNIX}/nv-ioctl.h": "",
            "src/nvidia/generated/g_allclasses.h": "#define NV20_SUBDEVICE_0 (0x00002080)\n",
            "src/nvidia/generated/g_subdevice_nvoc.c": f"/*flags=*/      {self.flags:#x}u,\n/*accessRight=*/0x0u,\n"
            f'/*methodId=*/   {self.control:#x}u,\n/*paramSize=*/  sizeof({PARAMS}),\n/*func=*/ "name"\n',
            "src/nvidia/inc/kernel/rmapi/control.h": "#define RMCTRL_FLAGS_PRIVILEGED 0x000000004\n"
            "#define RMCTRL_FLAGS_NON_PRIVILEGED 0x000000008\n",
            "src/nvidia/src/kernel/rmapi/resource_list.h": "RS_ENTRY(\n    /* External Class */ NV20_SUBDEVICE_0,\n"
            "    /* Alloc Param Info */ RS_REQUIRED(NV2080_ALLOC_PARAMETERS),\n)\n",
            "kernel-open/nvidia-uvm/uvm_ioctl.h": f"#define UVM_IOCTL_BASE(i) i\n{uvm}",
            "kernel-open/nvidia-uvm/uvm_linux_ioctl.h": "",
        }
