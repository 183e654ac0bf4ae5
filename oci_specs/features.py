"""What programs want of a GPU beside computing, and which containers get it.

A test compares each with native_sched/nvidia/rm/interface.def, by what NVIDIA's driver is asked for it.
"""

from dataclasses import dataclass

from oci_specs.driver_capabilities import GRAPHICS, VARIABLE, VIDEO

HOW = "ask for whole GPUs: MGPU_GPUS=1, with no amount of memory or compute"
NOT_ADMINISTRATORS_ALONE = "the driver asks for NVreg_RestrictProfilingToAdminUsers=0"


@dataclass(frozen=True)
class Feature:
    """share, whole: whether a container that shares its GPUs gets it, and one that holds them alone. why: why
    not. takes: what it takes beside that.

    capability: the one of NVIDIA_DRIVER_CAPABILITIES that it wants. gpus: how many GPUs it takes.

    asks: NVIDIA's names of the class, control or command that it cannot do without.
    """

    name: str
    what: str
    asks: tuple[str, ...]
    share: bool
    whole: bool
    why: str = ""
    takes: str = ""
    capability: str = ""
    gpus: int = 1

    def told(self, *, alone: bool) -> str:
        """Whether such a container gets it, in a line."""
        if self.whole if alone else self.share:
            return f"yes: {self.takes}" if self.takes else "yes"
        return f"no: {self.why}" + (f"; {HOW}" if self.whole else "")


FEATURES = (
    Feature(
        "tracing",
        "torch.profiler, CUPTI's activity, Nsight Systems",
        ("GF100_PROFILER",),
        True,
        True,
        takes=NOT_ADMINISTRATORS_ALONE,
    ),
    Feature(
        "counters",
        "CUPTI's metrics, Nsight Compute",
        ("MAXWELL_PROFILER_DEVICE", "NVB0CC_CTRL_CMD_EXEC_REG_OPS"),
        False,
        True,
        "they show the whole GPU",
        NOT_ADMINISTRATORS_ALONE,
    ),
    Feature(
        "hmm",
        "memory of malloc() on the GPU",
        ("UVM_POPULATE_PAGEABLE",),
        False,
        True,
        "faults would bring in more than is charged",
    ),
    Feature(
        "peers",
        "NVLink, CUDA's copies from GPU to GPU, NCCL peer to peer",
        ("NV50_P2P",),
        True,
        True,
        takes="the container has two GPUs or more that are no MIG instances, and a driver before 610",
        gpus=2,
    ),
    Feature(
        "multicast",
        "NVLS, fabric handles",
        ("NV_MEMORY_MULTICAST_FABRIC", "NV_MEMORY_FABRIC"),
        False,
        False,
        "memory of a fabric has names beyond the container: NCCL does without NVLS",
    ),
    Feature(
        "gpudirect",
        "GPUDirect RDMA by nvidia-peermem, GPUDirect Storage, GDRCopy",
        ("NV50_THIRD_PARTY_P2P",),
        False,
        True,
        "another device may hold memory beyond its account",
    ),
    Feature(
        "dmabuf",
        "export by dma-buf",
        ("NV_ESC_EXPORT_TO_DMABUF_FD",),
        False,
        False,
        "its descriptors outlive the container: GPUDirect RDMA goes by nvidia-peermem",
    ),
    Feature(
        "video",
        "NVDEC, NVENC, NVJPG, OFA",
        ("NVC4B0_VIDEO_DECODER", "NVC4B7_VIDEO_ENCODER", "NVC4D1_VIDEO_NVJPG", "NVC6FA_VIDEO_OFA"),
        True,
        True,
        takes=f"{VARIABLE} has video or all",
        capability=VIDEO,
    ),
    Feature(
        "graphics",
        "Vulkan, OpenGL, EGL, OptiX",
        ("TURING_A", "AMPERE_A", "ADA_A", "HOPPER_A", "BLACKWELL_A", "FERMI_TWOD_A"),
        True,
        True,
        takes=f"{VARIABLE} has graphics or all, and the program needs no screen",
        capability=GRAPHICS,
    ),
    Feature(
        "debugger",
        "cuda-gdb",
        ("NV83DE_CTRL_CMD_DEBUG_READ_MEMORY", "NV83DE_CTRL_CMD_DEBUG_SUSPEND_CONTEXT"),
        False,
        True,
        "a debugger resumes what is suspended",
    ),
    Feature("mps", "MPS", ("MPS_COMPUTE",), False, True, "its programs cannot be suspended apart"),
)
