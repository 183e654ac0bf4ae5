"""What the filter refuses besides commands of the driver's, and how."""

# System calls that reach a device past ioctl() and mmap(): io_uring opens and passes files without a system
# call to filter; remap_file_pages() calls a file's mmap() on what mremap() has moved, at another address than
# it was asked for.
REFUSED_SYSCALLS: tuple[str, ...] = ("io_uring_setup", "remap_file_pages")

# EPERM, which runc and crun also give when a profile names no errnoRet.
REFUSED_ERRNO = 1
