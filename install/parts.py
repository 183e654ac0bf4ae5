"""What the engines are pointed at: programs of this installation of mgpu."""

import sys
from dataclasses import dataclass
from pathlib import Path

from oci_specs import paths
from oci_specs.refusal import Refusal, quoted

# The name of the OCI runtime, of the CRI handler and of the RuntimeClass.
HANDLER = "mgpu"
SHIM = "containerd-shim-mgpu-v2"
SHIM_TYPE = "io.containerd.mgpu.v2"
RUNTIME = "mgpu-runtime"
# For Kubernetes, once per cluster.
RUNTIME_CLASS = (
    f"kubectl apply -f {Path(__file__).parents[1] / 'cluster' / 'manifests' / 'runtimeclass.yaml'}"
)
CONF_DIR = Path("/etc/mgpu")
# Where mgpu-runtime looks unless its caller says otherwise (runtime_hook/common/conf.h).
RUNTIME_CONF = CONF_DIR / "runtime.conf"
NODE_CONFIG = CONF_DIR / "node.toml"


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Absolute paths of the installed programs. runtime_conf is the text of RUNTIME_CONF."""

    prefix: str
    runtime: str
    shim: str
    holder: str
    mgpud: str
    root: str
    runtime_conf: str


def found(*, root: str, runtime_conf: str) -> Parts:
    """The programs of the installation that this interpreter belongs to; Refusal if one is missing."""
    mgpud = Path(sys.prefix) / "bin" / "mgpud"
    if not mgpud.exists():
        raise Refusal("not-installed", f"{mgpud} does not exist", "install mgpu again")
    return checked(
        Parts(
            prefix=sys.prefix,
            runtime=paths.libexec(RUNTIME),
            shim=paths.libexec(SHIM),
            holder=paths.libexec("mgpu-holder"),
            mgpud=str(mgpud),
            root=root,
            runtime_conf=runtime_conf,
        )
    )


def checked(parts: Parts) -> Parts:
    """The same; Refusal for a path that would need quoting in one of the files it is written to."""
    for path in (parts.runtime, parts.shim, parts.holder, parts.mgpud, parts.root):
        # systemd splits at spaces and expands % and $; TOML and JSON escape quotes and backslashes.
        if not path.isascii() or not path.isprintable() or set(path) & set(" \"'\\%$"):
            raise Refusal(
                "odd-path",
                f"the path {quoted(path)} has a character in it that configuration files would need escaped",
                "install mgpu below a plain path, such as /opt/mgpu",
            )
    return parts
