"""NVIDIA_DRIVER_CAPABILITIES: what of the driver a container is to have, in the words of NVIDIA's runtime."""

from collections.abc import Collection, Mapping

from oci_specs.refusal import Refusal, quoted

VARIABLE = "NVIDIA_DRIVER_CAPABILITIES"
COMPUTE, UTILITY, VIDEO, GRAPHICS = "compute", "utility", "video", "graphics"
KNOWN = ("compat32", COMPUTE, "display", GRAPHICS, "ngx", UTILITY, VIDEO)
ALL = "all"
# A container that does not say it has these, as NVIDIA's runtime has it.
DEFAULT = (COMPUTE, UTILITY)

# Files of the driver's that are for some capabilities alone, by their names up to ".so". Others come always.
_FOR: dict[str, tuple[str, ...]] = {
    "libnvidia-ml": (UTILITY,),
    "libnvidia-cfg": (UTILITY,),
    "nvidia-smi": (UTILITY,),
    "nvidia-debugdump": (UTILITY,),
    "libcuda": (COMPUTE,),
    "libcudadebugger": (COMPUTE,),
    "libnvidia-opencl": (COMPUTE,),
    "libnvidia-ptxjitcompiler": (COMPUTE,),
    "libnvidia-nvvm": (COMPUTE,),
    "nvidia-cuda-mps-control": (COMPUTE,),
    "nvidia-cuda-mps-server": (COMPUTE,),
    "libnvcuvid": (VIDEO,),
    "libnvidia-encode": (VIDEO,),
    "libnvidia-opticalflow": (VIDEO,),
    "libvdpau_nvidia": (VIDEO,),
    "libnvidia-ngx": ("ngx",),
    **dict.fromkeys(
        (
            *("libEGL_nvidia", "libGLESv1_CM_nvidia", "libGLESv2_nvidia", "libGLX_nvidia"),
            *(
                "libnvidia-eglcore",
                "libnvidia-glcore",
                "libnvidia-glsi",
                "libnvidia-glvkspirv",
                "libnvidia-tls",
            ),
            *("libnvidia-egl-gbm", "libnvidia-egl-wayland", "libnvidia-egl-xcb", "libnvidia-egl-xlib"),
            *(
                "libnvidia-rtcore",
                "libnvoptix",
                "nvoptix.bin",
                "libnvidia-vulkan-producer",
                "nvidia-drm_gbm",
            ),
            *("nvidia_icd.json", "nvidia_layers.json", "10_nvidia.json", "10_nvidia_wayland.json"),
            *("15_nvidia_gbm.json", "20_nvidia_xcb.json", "20_nvidia_xlib.json"),
        ),
        (GRAPHICS, "display"),
    ),
}


def granted(env: Mapping[str, str], supported: Collection[str]) -> tuple[str, ...]:
    """What the container gets, in alphabetical order: "all" is what the node supports. Refusal."""
    text = env.get(VARIABLE, "")
    words = {word.strip() for word in text.split(",")} - {""}
    if not words or ALL in words:
        return tuple(sorted(set(KNOWN if words else DEFAULT) & set(supported)))
    if words - set(KNOWN):
        raise Refusal(
            "bad-value",
            f"{VARIABLE} is {quoted(text)}",
            f"allowed: {', '.join((ALL, *KNOWN))}, with commas between",
        )
    if missing := sorted(words - set(supported)):
        raise Refusal(
            "capability-forbidden",
            f"{VARIABLE} asks for {', '.join(missing)}, which this node gives to no container",
            "leave it out, or add it to supported_driver_capabilities in node.toml",
        )
    return tuple(sorted(words))


def brings(path: str, capabilities: Collection[str]) -> bool:
    """Whether a container with these gets that file of the driver's."""
    name = path.rpartition("/")[2].partition(".so")[0]
    return name not in _FOR or any(one in capabilities for one in _FOR[name])
