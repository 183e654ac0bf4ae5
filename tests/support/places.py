"""Where the tests find what `make` built."""

import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
# The interpreter that runs the tests is the one mgpu is installed for.
PREFIX = Path(sys.prefix)
MGPU = PREFIX / "bin" / "mgpu"
IMAGE_NAME = "docker.io/library/mgpu-test:latest"
IMAGE_ARCHIVE = REPOSITORY / "build" / "image" / "mgpu-test.tar"
IMAGE_ROOTFS = REPOSITORY / "build" / "image" / "rootfs"
FOREIGN = REPOSITORY / "build" / "foreign"
FOREIGN_PACKAGES = FOREIGN / "packages"
