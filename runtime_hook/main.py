"""What mgpu-runtime starts with `python -ISs` for create and run."""

import sys

# -I leaves the script's folder out of sys.path and -S leaves out site-packages. Last, so as to hide no stdlib
# module.
sys.path.append(__file__.rpartition("/runtime_hook/")[0])

from runtime_hook.create import main

sys.exit(main(sys.argv[1:]))
