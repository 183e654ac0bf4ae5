"""NVIDIA_DRIVER_CAPABILITIES as NVIDIA's runtime reads it, and which of the driver's files come with each."""

import pytest

from native_sched.daemon.grants import driver_files
from oci_specs import driver_capabilities
from oci_specs.driver_capabilities import KNOWN, brings, granted
from oci_specs.refusal import Refusal

LIB = "/usr/lib/x86_64-linux-gnu"
FILES = {
    "compute": f"{LIB}/libcuda.so.580.95.05",
    "utility": "/usr/bin/nvidia-smi",
    "video": f"{LIB}/libnvcuvid.so.580.95.05",
    "graphics": f"{LIB}/libEGL_nvidia.so.0",
    "ngx": f"{LIB}/libnvidia-ngx.so.580.95.05",
}
ALWAYS = "/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin"


@pytest.mark.parametrize(
    ("value", "given"),
    [
        (None, ("compute", "utility")),
        ("", ("compute", "utility")),
        ("compute", ("compute",)),
        ("utility", ("utility",)),
        ("compute, video", ("compute", "video")),
        ("graphics", ("graphics",)),
        ("video,all", KNOWN),
        ("all", KNOWN),
    ],
)
def test_what_a_container_has(value: str | None, given: tuple[str, ...]) -> None:
    env = {} if value is None else {driver_capabilities.VARIABLE: value}
    assert granted(env, KNOWN) == given
    assert brings(ALWAYS, given)
    for capability, path in FILES.items():
        assert brings(path, given) == (capability in given), path


def test_all_is_what_the_node_supports() -> None:
    env = {driver_capabilities.VARIABLE: "all"}
    assert granted(env, ("video", "compute")) == ("compute", "video")
    assert granted({}, ("compute",)) == ("compute",)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            "compute,vide",
            'mgpu: NVIDIA_DRIVER_CAPABILITIES is "compute,vide"; '
            "allowed: all, compat32, compute, display, graphics, ngx, utility, video, with commas between",
        ),
        (
            "compute,video,ngx",
            "mgpu: NVIDIA_DRIVER_CAPABILITIES asks for ngx, video, which this node gives to no container; "
            "leave it out, or add it to supported_driver_capabilities in node.toml",
        ),
    ],
)
def test_unknown_or_forbidden_capability_is_refused(value: str, said: str) -> None:
    with pytest.raises(Refusal) as refused:
        granted({driver_capabilities.VARIABLE: value}, ("compute", "utility"))
    assert refused.value.line() == said


def test_mounts_of_others_are_left_out() -> None:
    mounts = [{"source": path, "destination": path} for path in (*FILES.values(), ALWAYS)]
    kept = driver_files.keep_asked({"mounts": mounts, "devices": []}, ("utility", "video"))
    assert [mount["source"] for mount in kept["mounts"]] == [FILES["utility"], FILES["video"], ALWAYS]
