"""OpenGL ES without a screen: the devices of EGL, and on NVIDIA's (else the first that works) a colour
cleared to, and read back.
"""

from __future__ import annotations

import ctypes
import json
import os
import tempfile
from ctypes import CFUNCTYPE, POINTER, byref, c_char_p, c_float, c_int, c_ssize_t, c_uint, c_void_p
from functools import partial
from typing import Any

from report import FOLDERS, Report, library

PLATFORM_DEVICE, EXTENSIONS, VENDOR, VERSION = 0x313F, 0x3055, 0x3053, 0x3054
CUDA_DEVICE = 0x323A
DRM_FILE = 0x3233
ES_API = 0x30A0
NONE = 0x3038
CONFIG = (
    0x3033,
    1,
    0x3040,
    4,
    0x3024,
    8,
    0x3023,
    8,
    0x3022,
    8,
    0x3021,
    8,
    NONE,
)  # a pbuffer, ES 2, 8 bits each
SIDE = 64
PBUFFER = (0x3057, SIDE, 0x3056, SIDE, NONE)
CONTEXT = (0x3098, 2, NONE)
COLOUR_BIT, RGBA, BYTE = 0x4000, 0x1908, 0x1401

report = Report("egl")
# GLVND's, and where the driver of some machines lies.
VENDORS = ("/usr/share/glvnd/egl_vendor.d", "/etc/glvnd/egl_vendor.d")
ELSEWHERE = "/usr/local/nvidia/share/glvnd/egl_vendor.d/10_nvidia.json"


def vendor_file() -> str:
    """GLVND finds NVIDIA's library by a file; where that is missing but the library is not, one is made."""
    for folder in VENDORS:
        if os.path.isdir(folder) and any("nvidia" in name for name in os.listdir(folder)):
            return "there"
    for folder in FOLDERS:
        path = folder + "libEGL_nvidia.so.0"
        try:
            ctypes.CDLL(path)
        except OSError:
            continue
        file = ELSEWHERE
        if not os.path.exists(file):
            file = os.path.join(tempfile.mkdtemp(), "10_nvidia.json")
            with open(file, "w") as out:
                json.dump({"file_format_version": "1.0.0", "ICD": {"library_path": path}}, out)
        os.environ["__EGL_VENDOR_LIBRARY_FILENAMES"] = file
        return f"{file} for {path}"
    return "no libEGL_nvidia.so.0"


report.check("vendor_file", vendor_file)
egl: Any = report.check("libEGL", lambda: library("libEGL.so.1"))
if egl is None:
    report.finish()
report.facts["libEGL"] = True
egl.eglGetProcAddress.restype = c_void_p
egl.eglGetProcAddress.argtypes = (c_char_p,)


def proc(name: str, result: Any, *arguments: Any) -> Any:
    address = egl.eglGetProcAddress(name.encode())
    if not address:
        raise RuntimeError(f"no {name}")
    return CFUNCTYPE(result, *arguments)(address)


def plain(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(egl, name)
    function.restype, function.argtypes = result, arguments
    return function


query = plain("eglQueryString", c_char_p, c_void_p, c_int)
error = plain("eglGetError", c_uint)
egl_initialize = plain("eglInitialize", c_uint, c_void_p, POINTER(c_int), POINTER(c_int))
bind_api = plain("eglBindAPI", c_uint, c_uint)
choose = plain("eglChooseConfig", c_uint, c_void_p, POINTER(c_int), POINTER(c_void_p), c_int, POINTER(c_int))
pbuffer = plain("eglCreatePbufferSurface", c_void_p, c_void_p, c_void_p, POINTER(c_int))
create = plain("eglCreateContext", c_void_p, c_void_p, c_void_p, c_void_p, POINTER(c_int))
current = plain("eglMakeCurrent", c_uint, c_void_p, c_void_p, c_void_p, c_void_p)
destroy_context = plain("eglDestroyContext", c_uint, c_void_p, c_void_p)
destroy_surface = plain("eglDestroySurface", c_uint, c_void_p, c_void_p)
terminate = plain("eglTerminate", c_uint, c_void_p)


def needed(what: str, value: Any) -> Any:
    if not value:
        raise RuntimeError(f"{what}: {error():#x}")
    return value


def draw(device: int) -> dict[str, object]:
    platform = proc("eglGetPlatformDisplayEXT", c_void_p, c_uint, c_void_p, POINTER(c_int))
    display = needed("eglGetPlatformDisplayEXT", platform(PLATFORM_DEVICE, device, None))
    major, minor, number, config = c_int(), c_int(), c_int(), c_void_p()
    needed("eglInitialize", egl_initialize(display, byref(major), byref(minor)))
    found: dict[str, object] = {
        "egl": f"{major.value}.{minor.value}", "vendor": (query(display, VENDOR) or b"").decode(),
        "version": (query(display, VERSION) or b"").decode(),
    }  # fmt: skip
    needed("eglBindAPI", bind_api(ES_API))
    wanted = (c_int * len(CONFIG))(*CONFIG)
    needed("eglChooseConfig", choose(display, wanted, byref(config), 1, byref(number)) and number.value)
    surface = needed("eglCreatePbufferSurface", pbuffer(display, config, (c_int * len(PBUFFER))(*PBUFFER)))
    context = needed("eglCreateContext", create(display, config, None, (c_int * len(CONTEXT))(*CONTEXT)))
    needed("eglMakeCurrent", current(display, surface, surface, context))
    string = proc("glGetString", c_char_p, c_uint)
    for name, number_of in (("gl_vendor", 0x1F00), ("gl_renderer", 0x1F01), ("gl_version", 0x1F02)):
        found[name] = (string(number_of) or b"").decode()
    pixels = (ctypes.c_ubyte * (SIDE * SIDE * 4))()
    proc("glViewport", None, c_int, c_int, c_int, c_int)(0, 0, SIDE, SIDE)
    proc("glClearColor", None, c_float, c_float, c_float, c_float)(0.2, 0.4, 0.6, 1.0)
    proc("glClear", None, c_uint)(COLOUR_BIT)
    proc("glFinish", None)()
    read = proc("glReadPixels", None, c_int, c_int, c_int, c_int, c_uint, c_uint, c_void_p)
    read(0, 0, SIDE, SIDE, RGBA, BYTE, pixels)
    found["gl_error"] = proc("glGetError", c_uint)()
    found["pixel"], found["last"] = list(pixels[:4]), list(pixels[-4:])
    current(display, None, None, None)
    destroy_context(display, context)
    destroy_surface(display, surface)
    terminate(display)
    if found["pixel"] != [51, 102, 153, 255] or found["last"] != found["pixel"]:
        raise RuntimeError(f"wrong pixels: {found}")
    return found


def devices() -> list[tuple[int, str, int]]:
    """Each with its extensions, and the number of CUDA's card, or -1."""
    number = c_int()
    ask = proc("eglQueryDevicesEXT", c_uint, c_int, POINTER(c_void_p), POINTER(c_int))
    needed("eglQueryDevicesEXT", ask(0, None, byref(number)))
    list_of: Any = (c_void_p * max(number.value, 1))()
    needed("eglQueryDevicesEXT", ask(number.value, list_of, byref(number)))
    string = proc("eglQueryDeviceStringEXT", c_char_p, c_void_p, c_int)
    attribute = proc("eglQueryDeviceAttribEXT", c_uint, c_void_p, c_int, POINTER(c_ssize_t))
    found = []
    for device in list_of[: number.value]:
        value = c_ssize_t(-1)
        extensions = (string(device, EXTENSIONS) or b"").decode()
        if "EGL_NV_device_cuda" not in extensions or not attribute(device, CUDA_DEVICE, byref(value)):
            value.value = -1
        if "EGL_EXT_device_drm" in extensions.split():
            extensions += " at " + (string(device, DRM_FILE) or b"none").decode()
        found.append((device, extensions, value.value))
    return found


report.facts["client_extensions"] = (query(None, EXTENSIONS) or b"").decode()
found = report.check("devices", devices)
if isinstance(found, list):
    report.facts["devices"] = [f"cuda {card}: {extensions}" for _, extensions, card in found]
    if not found:
        report.fail("no EGL device")
    ours = [device for device, _, card in found if card >= 0]
    if found and not ours:
        report.fail("no EGL device of CUDA's")
    for place, device in enumerate(ours or [device for device, _, _ in found][:2]):
        report.check(f"draw_{place}", partial(draw, device))
report.finish()
