"""A folder that runs on any libc and needs no Python of the machine."""
